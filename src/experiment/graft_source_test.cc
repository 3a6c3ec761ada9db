#include "src/experiment/graft_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/experiment/leg_plan.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::graft_source_test {
namespace {

struct Piece {
  Leg leg;
  std::string fqn;
  float value = 0;
};

Side Write(const std::string& folder, const std::vector<Piece>& pieces,
           const std::string& manifest = "{}") {
  OrDie(CreateTraceFolder(folder, manifest, true));
  const auto writer =
      OrDie(TraceWriter::Open(folder, TensorParallelMeta(0, 1)));
  OrDie(writer->Note("graft_begins", R"({"what":"weights"})"));
  OrDie(writer->Note("graft_begins", R"({"what":"data"})"));
  for (const Piece& piece : pieces) {
    const std::vector<float> values = {piece.value, 2};
    Occurrence occurrence = RealOccurrence();
    occurrence.leg = piece.leg;
    OrDie(writer->Append(PlainSpec(piece.fqn, DType::kF32, {2}), occurrence,
                         {reinterpret_cast<const std::byte*>(values.data()),
                          std::vector<int64_t>{1}}));
    OrDie(writer->Seal(0, piece.leg));
  }
  OrDie(writer->Close(true, ""));
  return OrDie(Side::Open(folder, {}));
}

TEST(GraftSource, IsToldByTheValuesOfTheRunAndItsFp32Leg) {
  const ScratchFolder scratch;
  const auto digest = [&](const std::vector<Piece>& pieces) {
    return DigestOfGraftSource(Write(scratch / "trace", pieces).traces());
  };
  const std::string first =
      digest({{"real", "a", 1}, {"real", "b", 2}, {"fp32", "a", 3}});
  EXPECT_EQ(first.size(), 16U);
  EXPECT_EQ(digest({{"real", "b", 2}, {"fp32", "a", 3}, {"real", "a", 1}}),
            first);
  EXPECT_EQ(digest({{"real", "a", 1},
                    {"real", "b", 2},
                    {"noise.1", "a", 5},
                    {"fp32", "a", 3}}),
            first);
  EXPECT_NE(digest({{"real", "a", 1.5}, {"real", "b", 2}, {"fp32", "a", 3}}),
            first);
  EXPECT_NE(digest({{"real", "a", 1}, {"real", "b", 2}, {"fp32", "a", 3.5}}),
            first);
  EXPECT_NE(digest({{"real", "b", 1}, {"real", "a", 2}, {"fp32", "a", 3}}),
            first);
}

TEST(GraftSource, OfAnotherTraceIsKnownWhereTheCandidateSaysIt) {
  const ScratchFolder scratch;
  const Side reference = Write(scratch / "reference", {{"real", "a", 1}});
  const std::string values = DigestOfGraftSource(reference.traces());
  const std::string scratch_candidate = scratch / "candidate";
  const auto is_another = [&](const std::string& manifest) {
    return GraftedFromAnother(
        Write(scratch_candidate, {{"real", "a", 1}}, manifest), reference);
  };
  EXPECT_FALSE(is_another("{}")) << "recorded before it was said";
  EXPECT_FALSE(is_another(R"({"graft":{"reference":"r"}})"));
  EXPECT_FALSE(is_another(R"({"graft":{"values":")" + values + "\"}}"));
  EXPECT_TRUE(is_another(R"({"graft":{"values":"0000000000000001"}})"));
  EXPECT_FALSE(is_another(R"({"graft":{"values":7}})"));
  EXPECT_FALSE(is_another(R"({"graft":[]})"));

  // Isolated legs are used where their values were this reference's.
  const auto isolated_legs = [&](const std::string& manifest) {
    const Side candidate = Write(
        scratch_candidate, {{"real", "a", 1}, {"isolated", "a", 1}}, manifest);
    const LegPlans legs = PlanLegs(reference, candidate);
    if (!legs.notes.empty()) {
      EXPECT_NE(legs.notes.front().text.find("another reference"),
                std::string::npos);
    }
    return std::count_if(legs.plans.begin(), legs.plans.end(),
                         [](const LegPlan& plan) { return plan.isolated; });
  };
  EXPECT_EQ(isolated_legs(R"({"graft":{"values":")" + values + "\"}}"), 1);
  EXPECT_EQ(isolated_legs(R"({"graft":{"values":"0000000000000001"}})"), 0);

  const Side golden = Write(scratch / "golden", {},
                            R"({"condensed":{"values":")" + values + "\"}}");
  EXPECT_EQ(DigestOfGraftSource(golden.traces()), values);
}

}  // namespace
}  // namespace ttrace::graft_source_test
