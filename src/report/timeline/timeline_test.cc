#include "src/report/timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/trace/testing/scratch_trace.h"
#include "src/trace/writing/record_times.h"

namespace ttrace::timeline_test {
namespace {

struct Piece {
  std::string fqn;
  Role role;
  Pass pass;
  int64_t time_us;
};

// A model of one module, forward, backward and step.
const std::vector<Piece> kStep = {
    {"", Role::kInput, Pass::kForward, 100},
    {"fc", Role::kInput, Pass::kForward, 110},
    {"fc", Role::kOutput, Pass::kForward, 120},
    {"", Role::kOutput, Pass::kForward, 130},
    {"fc", Role::kGradOutput, Pass::kBackward, 140},
    {"fc", Role::kGradInput, Pass::kBackward, 150},
    {"fc.weight", Role::kGradReduced, Pass::kBackward, 160},
    {"fc.weight", Role::kOptimState, Pass::kOptimizer, 165},
    // As the next iteration finds it.
    {"fc.weight", Role::kParamUpdated, Pass::kOptimizer, 170},
};

struct RankOptions {
  int64_t delay_us = 0;
  bool timed = true;
  std::vector<nlohmann::json> collectives = {};
  std::vector<Piece> pieces = kStep;
};

nlohmann::json Call(int rank, const char* kind, std::vector<int> members,
                    int64_t time_us) {
  nlohmann::json json = {{"rank", rank},        {"iteration", 0},
                         {"order", 0},          {"kind", kind},
                         {"op", "sum"},         {"members", members},
                         {"phase", "backward"}, {"fqn", "fc"},
                         {"micro_batch", -1},   {"elements", 4},
                         {"dtype", "float32"},  {"parameters", {"fc.weight"}}};
  if (time_us >= 0) json["time_us"] = time_us;
  return json;
}

std::shared_ptr<const Trace> WriteRun(const ScratchFolder& scratch,
                                      const std::vector<RankOptions>& ranks) {
  const std::string folder = scratch / "t";
  OrDie(CreateTraceFolder(folder, "{}", true));
  const std::vector<float> values = {1};
  const std::vector<int64_t> strides = {1};
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto writer =
        OpenRank(folder, static_cast<int>(r), static_cast<int>(ranks.size()));
    for (const char* leg : {"real", "isolated"}) {
      for (const Piece& piece : ranks[r].pieces) {
        RecordSpec spec = PlainSpec(piece.fqn, DType::kF32, {1});
        spec.role = piece.role;
        Occurrence at = RealOccurrence();
        at.leg = Leg(leg);
        at.pass = piece.pass;
        if (ranks[r].timed) {
          at.time_us =
              piece.time_us + ranks[r].delay_us + (at.leg == kReal ? 0 : 1000);
        }
        OrDie(writer->Append(
            spec, at, {std::as_bytes(std::span(values)).data(), strides}));
      }
      int64_t order = 0;
      for (nlohmann::json call : ranks[r].collectives) {
        call["order"] = order++;
        if (std::string(leg) == "real") {
          OrDie(writer->Note("collective", call.dump()));
        }
      }
      OrDie(writer->Seal(0, Leg(leg)));
    }
    OrDie(writer->Close(true, ""));
  }
  return OrDie(Trace::Open(folder));
}

const TimelineSlice* Find(const TimelineLeg& leg, const std::string& name,
                          const std::string& category) {
  for (const TimelineSlice& slice : leg.slices) {
    if (slice.name == name && slice.category == category) return &slice;
  }
  return nullptr;
}

std::pair<int64_t, int64_t> SpanOf(const TimelineLeg& leg,
                                   const std::string& name,
                                   const std::string& category) {
  const TimelineSlice* slice = Find(leg, name, category);
  if (slice == nullptr) return {-1, -1};
  return {slice->begin_us, slice->end_us};
}

using Span = std::pair<int64_t, int64_t>;

TEST(Timeline, ModulesLastFromTheirInputsToTheirOutputs) {
  const ScratchFolder scratch;
  const Timeline timeline = MakeTimeline({WriteRun(scratch, {{}})}, {});
  EXPECT_EQ(timeline.axis, Timeline::Axis::kTime);
  ASSERT_EQ(timeline.ranks.size(), 1u);
  ASSERT_EQ(timeline.ranks[0].legs.size(), 2u);
  const TimelineLeg& real = timeline.ranks[0].legs[0];
  EXPECT_EQ(real.leg, "real");
  EXPECT_EQ(SpanOf(real, "iteration 0", "iteration"), Span(0, 65));
  EXPECT_EQ(SpanOf(real, "(the model itself)", "forward"), Span(0, 30));
  EXPECT_EQ(SpanOf(real, "fc", "forward"), Span(10, 20));
  EXPECT_EQ(SpanOf(real, "fc", "backward"), Span(40, 50));
  EXPECT_EQ(SpanOf(real, "optimizer's step", "optimizer"), Span(60, 65));
  EXPECT_EQ(SpanOf(timeline.ranks[0].legs[1], "fc", "forward"),
            Span(1010, 1020));
}

TEST(Timeline, AModuleIsAroundItsPartsHoweverGradientsArrive) {
  const ScratchFolder scratch;
  // At its last part first, and of a part that is beside the others last.
  const Timeline timeline = MakeTimeline(
      {WriteRun(scratch,
                {{.pieces = {{"a.b", Role::kGradOutput, Pass::kBackward, 10},
                             {"a", Role::kGradOutput, Pass::kBackward, 11},
                             {"a.b", Role::kGradInput, Pass::kBackward, 20},
                             {"a.c.d", Role::kGradOutput, Pass::kBackward, 30},
                             {"a", Role::kGradInput, Pass::kBackward, 40},
                             {"a.c.d", Role::kGradInput, Pass::kBackward, 41},
                             {"ab", Role::kGradInput, Pass::kBackward, 60}}}})},
      {});
  const TimelineLeg& leg = timeline.ranks[0].legs[0];
  EXPECT_EQ(SpanOf(leg, "a", "backward"), Span(0, 31));
  EXPECT_EQ(SpanOf(leg, "a.c.d", "backward"), Span(20, 31));
  EXPECT_EQ(SpanOf(leg, "ab", "backward"), Span(50, 50));
  for (const TimelineSlice& slice : leg.slices) EXPECT_EQ(slice.lane, 0);
}

TEST(Timeline, RanksOfOneMachineKeepWhatIsBetweenThem) {
  const ScratchFolder scratch;
  const Timeline timeline =
      MakeTimeline({WriteRun(scratch, {{.delay_us = 25}, {}})}, {});
  EXPECT_EQ(timeline.machines, 1);
  EXPECT_EQ(timeline.ranks[0].place, "tp=0");
  EXPECT_EQ(SpanOf(timeline.ranks[0].legs[0], "fc", "forward"), Span(35, 45));
  EXPECT_EQ(SpanOf(timeline.ranks[1].legs[0], "fc", "forward"), Span(10, 20));
}

TEST(Timeline, WithoutTimesTheOrderIsTheAxis) {
  const ScratchFolder scratch;
  // Of one rank they are not known: then those of the other say nothing.
  const Timeline timeline =
      MakeTimeline({WriteRun(scratch, {{}, {.timed = false}})}, {});
  EXPECT_EQ(timeline.axis, Timeline::Axis::kOrder);
  for (const TimelineRank& rank : timeline.ranks) {
    EXPECT_EQ(SpanOf(rank.legs[0], "fc", "forward"), Span(1, 2));
    EXPECT_EQ(SpanOf(rank.legs[1], "fc", "forward"), Span(10, 11));
  }
}

TEST(Timeline, ACollectiveIsOneFlowOnAllItsRanks) {
  const ScratchFolder scratch;
  // What the one sends is not what the other sends, who does so first.
  const Timeline timeline = MakeTimeline(
      {WriteRun(scratch, {{.collectives = {Call(0, "all_reduce", {0, 1}, 152),
                                           Call(0, "send", {0, 1}, 155)}},
                          {.collectives = {Call(1, "send", {0, 1}, 153),
                                           Call(1, "all_reduce", {0, 1}, 154),
                                           Call(1, "recv", {0, 1}, 156)}}})},
      {});
  const auto& first = timeline.ranks[0].collectives;
  const auto& second = timeline.ranks[1].collectives;
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(first[0].at_us, 52);
  EXPECT_EQ(second[2].at_us, 56);
  EXPECT_NE(first[0].flow, 0u);
  EXPECT_EQ(second[0].flow, 0u);  // nobody received it
  EXPECT_EQ(second[1].flow, first[0].flow);
  EXPECT_EQ(second[2].flow, first[1].flow);
  EXPECT_NE(second[2].flow, second[1].flow);
}

TEST(Timeline, ACollectiveWithoutATimeIsAtTheEndOfItsModule) {
  const ScratchFolder scratch;
  const Timeline timeline = MakeTimeline(
      {WriteRun(scratch, {{.collectives = {Call(0, "all_reduce", {0}, -1)}}})},
      {});
  ASSERT_EQ(timeline.ranks[0].collectives.size(), 1u);
  EXPECT_EQ(timeline.ranks[0].collectives[0].at_us, 50);
}

ResultFile WithFinding() {
  ResultFile result;
  ResultFile::Tensor tensor;
  tensor.fqn = "fc";
  tensor.role = "grad_input";
  tensor.arg = "0";
  tensor.pass = "backward";
  tensor.verdict = "diverged";
  tensor.isolated = ResultFile::Isolated{};
  tensor.isolated->verdict = "within";
  result.tensors = {tensor};
  ResultFile::Place culprit;
  culprit.fqn = "fc";
  culprit.role = "grad_input";
  culprit.tensor = tensor;
  culprit.ranks = {1};
  result.culprits = {culprit};
  return result;
}

TEST(Timeline, FindingsAreWhereTheirTensorWasRecorded) {
  const ScratchFolder scratch;
  const Timeline timeline =
      MakeTimeline({WriteRun(scratch, {{}, {}})}, WithFinding());
  EXPECT_EQ(timeline.unplaced, 0);
  const TimelineLeg& first = timeline.ranks[0].legs[0];
  const TimelineLeg& second = timeline.ranks[1].legs[0];
  ASSERT_EQ(first.marks.size(), 1u);  // the culprit is on rank 1 alone
  EXPECT_EQ(first.marks[0].category, "out of bounds");
  EXPECT_EQ(first.marks[0].at_us, 50);
  ASSERT_EQ(second.marks.size(), 2u);
  EXPECT_EQ(second.marks[0].category, "culprit");
  EXPECT_EQ(second.marks[0].name.rfind("FIRST: fc", 0), 0u);
  EXPECT_TRUE(Find(second, "fc", "backward")->flagged);
  EXPECT_FALSE(Find(second, "fc", "forward")->flagged);
  // In isolation it is within.
  EXPECT_TRUE(timeline.ranks[1].legs[1].marks.empty());
}

TEST(Timeline, AFindingThatTheTraceDoesNotHaveIsCounted) {
  const ScratchFolder scratch;
  const auto trace = WriteRun(scratch, {{}});
  ResultFile result = WithFinding();
  result.tensors[0].call = result.culprits[0].tensor.call = 7;
  EXPECT_EQ(MakeTimeline({trace}, result).unplaced, 1);
  result.culprits[0].tensor.role = "no role";
  EXPECT_EQ(MakeTimeline({trace}, result).unplaced, 2);
}

}  // namespace
}  // namespace ttrace::timeline_test
