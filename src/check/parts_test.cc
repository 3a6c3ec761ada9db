// A check in parts gives what a check in one piece gives, and says which part
// is in the way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/align/testing/routed_run.h"
#include "src/check/merge_parts.h"
#include "src/check/part_file.h"
#include "src/check/testing/check_fixture.h"
#include "src/check/testing/step_run.h"
#include "src/measure/packed.h"
#include "src/report/render.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::parts_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

class PartsTest : public CheckTest {
 protected:
  CheckOptions Options() {
    if (!fs::exists(Path("ref"))) reference_.Write(Path("ref"));
    if (!fs::exists(Path("cand"))) candidate_.Write(Path("cand"));
    CheckOptions options;
    if (with_reference_) options.reference = Path("ref");
    options.candidate = Path("cand");
    return options;
  }

  // One process's result but for the wall time, or the error.
  static std::string Render(Result<CheckResult> result) {
    if (!result.ok()) return "error: " + result.error().message();
    (*result).seconds = 0;
    TerminalOptions verbose;
    verbose.verbose = true;
    return RenderJson(*result) + RenderTerminal(*result, verbose);
  }

  std::string Part(int part, int of) const {
    return PartPath(Path("parts") + "/", {part, of});
  }

  void Run(const CheckOptions& options, int part, int of) {
    const Share share{part, of};
    const Status done =
        RunPart(options, HeadOf(options, share, "/here"), Part(part, of));
    EXPECT_TRUE(done.ok()) << done.error().message();
  }

  std::vector<std::string> RunAll(const CheckOptions& options, int of) {
    fs::remove_all(Path("parts"));
    std::vector<std::string> paths;
    for (int part = 1; part <= of; ++part) {
      Run(options, part, of);
      paths.push_back(Part(part, of));
    }
    return paths;
  }

  static Result<CheckResult> Merge(const std::vector<std::string>& paths,
                                   const std::string& from = "/here") {
    return MergeParts({paths, from, 0});
  }
  static std::string Said(const std::vector<std::string>& paths,
                          const std::string& from = "/here") {
    const auto merged = Merge(paths, from);
    return merged.ok() ? "no error" : merged.error().message();
  }

  // Any number of parts, in any order.
  void ExpectSame(const CheckOptions& options) {
    const std::string expected = Render(RunCheck(options));
    for (const int of : shares_) {
      auto paths = RunAll(options, of);
      std::shuffle(paths.begin(), paths.end(), std::mt19937(7));
      EXPECT_EQ(Render(Merge(paths)), expected) << of << " parts";
      EXPECT_EQ(Render(Merge({Path("parts")})), expected) << of << " parts";
    }
  }
  void ExpectSame(Verdict verdict) {
    const auto whole = RunCheck(Options());
    ASSERT_TRUE(whole.ok()) << whole.error().message();
    EXPECT_EQ(whole->verdict, verdict) << whole->reason;
    ExpectSame(Options());
  }

  void Zero(const std::string& side,
            const std::function<bool(const Record&)>& is, size_t most = 1) {
    Options();
    const auto trace = OrDie(Trace::Open(Path(side.c_str())));
    for (const Record& record : trace->records()) {
      if (!is(record) || most == 0) continue;
      --most;
      std::fstream file(Path(side.c_str()) + "/" +
                            RankFolderName({record.rank(), 0}) + "/" +
                            SegmentFileName(record.extent().segment),
                        std::ios::in | std::ios::out | std::ios::binary);
      const std::string zeros(static_cast<size_t>(record.extent().bytes), '\0');
      file.seekp(record.extent().offset)
          .write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
    }
    EXPECT_EQ(most, 0u);
  }

  bool with_reference_ = true;
  // How many parts a check is cut into, one after the other.
  std::vector<int> shares_ = {1, 2, 7};
};

TEST_F(PartsTest, OfACleanRun) {
  shares_ = {1, 2, 3, 7, 100};  // 100: more than there are tensors
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  ExpectSame(Verdict::kWithin);
}

TEST_F(PartsTest, OfAWrongRun) {
  shares_ = {1, 2, 3, 7, 100};
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  candidate_.legs = {"real", "replay"};
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&,
                        int64_t index, float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput && rank == 1) *value *= 2;
    if (t.role == Role::kGradReduced && index == 3) *value = NAN;
  };
  ExpectSame(Verdict::kDiverged);
}

TEST_F(PartsTest, OfARunWithoutReference) {
  with_reference_ = false;
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  candidate_.fault = [](const SyntheticTensor& t, int rank, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kGradReduced && rank == 2) *value += 1;
  };
  ExpectSame(Verdict::kDiverged);
}

TEST_F(PartsTest, OfRowsInAnotherOrder) {
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&,
                        int64_t index, float* value) {
    if (t.batch_dim != 0) return;
    const int64_t width = t.global[1];
    const int64_t row = SyntheticRun::kRows - 1 - index / width;
    *value = SyntheticRun::Value(t, row * width + index % width);
  };
  const auto whole = RunCheck(Options());
  ASSERT_TRUE(whole.ok());
  ASSERT_THAT(Notes(*whole), testing::Contains(HasSubstr("order")));
  ExpectSame(Options());
}

// Weights that differ after a step are seen by one part and matter to all.
TEST_F(PartsTest, OfAnUngraftedRunThatDrifts) {
  const SyntheticTensor updated = {
      "fc.weight", Role::kParamUpdated,           "", Pass::kOptimizer,
      {16, 32},    {{"tp", Placement(Shard{0})}}, -1, {}};
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->iterations = 3;
    run->extra = {updated};
  }
  const auto whole = OrDie(RunCheck(Options()));
  const auto apart = std::count_if(
      whole.tensors.begin(), whole.tensors.end(),
      [](const auto& t) { return t.reason.kind == ReasonKind::kUnequalStart; });
  EXPECT_GT(apart, 0);
  ExpectSame(Options());
  CheckOptions some = Options();
  some.iterations = IterationRange{1, 3};
  some.risk = 1e-4;
  ExpectSame(some);
}

// A reported norm is of gradients that several parts read.
TEST_F(PartsTest, OfAReportedNorm) {
  const SyntheticTensor norm = {
      "", Role::kGradNorm, "", Pass::kOptimizer, {1, 1}, {}, -1, {}};
  const SyntheticTensor more = {"more.weight",
                                Role::kGradReduced,
                                "",
                                Pass::kBackward,
                                {16, 32},
                                {},
                                -1,
                                {}};
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->extra = {norm, more};
    run->fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                    float* value) {
      if (t.role == Role::kGradNorm) *value = 12;
    };
  }
  const auto whole = OrDie(RunCheck(Options()));
  const TensorJudgement& judged = Find(whole, "", Role::kGradNorm);
  ASSERT_EQ(judged.reason.kind, ReasonKind::kReportedNorm);
  EXPECT_NE(judged.reason.numbers[1], 0);
  ExpectSame(Options());
  // One gradient that cannot be read leaves no norm.
  Zero("cand", [](const Record& r) { return r.id().fqn == "more.weight"; });
  EXPECT_EQ(Find(OrDie(RunCheck(Options())), "", Role::kGradNorm).reason.kind,
            ReasonKind::kDamaged);
  ExpectSame(Options());
}

TEST_F(PartsTest, OfDamagedTraces) {
  candidate_.mesh = {{"dp", 2}, {"tp", 2}};
  Zero(
      "cand", [](const Record& r) { return r.id().role == Role::kGradLocal; },
      2);
  Zero(
      "ref", [](const Record& r) { return r.leg() == "noise.2"; }, 3);
  ExpectSame(Verdict::kInconclusive);
  const auto merged = OrDie(Merge({Path("parts")}));
  EXPECT_THAT(Notes(merged), testing::Contains(HasSubstr("damaged")));
}

TEST_F(PartsTest, OfSteps) {
  StepRun reference;
  StepRun candidate;
  candidate.mesh = {{"dp", 2}, {"tp", 2}};
  candidate.sharded_state = true;
  candidate.rule.clip_norm = reference.rule.clip_norm = 0.01;
  candidate.fault.ranks = {1};
  candidate.fault.iteration = 1;
  candidate.fault.rule = [](StepRule* rule) { rule->beta2 = 0.9; };
  reference.Write(Path("ref"));
  candidate.Write(Path("cand"));
  ExpectSame(Verdict::kDiverged);
  with_reference_ = false;
  ExpectSame(Verdict::kDiverged);
  // What the reference does as well is no fault of the candidate.
  fs::remove_all(Path("ref"));
  reference.mesh = candidate.mesh;
  reference.sharded_state = true;
  reference.fault = candidate.fault;
  reference.Write(Path("ref"));
  with_reference_ = true;
  const auto both = OrDie(RunCheck(Options()));
  EXPECT_THAT(Notes(both), testing::Contains(HasSubstr("in the reference")));
  ExpectSame(Options());
  // A step that cannot be made again on one side is none of the other.
  with_reference_ = true;
  Zero(
      "cand", [](const Record& r) { return r.id().arg == "exp_avg_sq"; }, 3);
  ExpectSame(Verdict::kInconclusive);
}

TEST_F(PartsTest, OfAFusedRun) {
  const SyntheticTensor norm = {"block.norm",
                                Role::kOutput,
                                "0",
                                Pass::kForward,
                                {SyntheticRun::kRows, 16},
                                {},
                                0,
                                {}};
  SyntheticTensor linear = norm;
  linear.fqn = "block.linear";
  for (SyntheticRun* run : {&reference_, &candidate_}) {
    run->extra = {norm, linear};
  }
  candidate_.omit = [](const SyntheticTensor& t, int, const Leg&, int) {
    return t.fqn == "block.norm";
  };
  candidate_.notes = {
      {"fused",
       R"({"fqn":"block.norm","within":"block.linear","class":"NormLinear",)"
       R"("names":{"block.norm":"block.linear"},)"
       R"("absent":{"block.norm":["output"]}})"}};
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.fqn == "block.linear") *value *= 2;
  };
  ExpectSame(Verdict::kDiverged);
}

TEST_F(PartsTest, OfRoutedRuns) {
  constexpr int64_t kToken = 11;
  RoutedRun reference;
  RoutedRun candidate;
  reference.rows_of_a_batch = RoutedRun::kRows;
  reference.legs = {"real", "noise.1", "noise.2", "noise.3"};
  candidate.dp = 2;
  candidate.tp = 2;
  candidate.rows_of_a_batch = 1;
  candidate.noise = 0x1p-24F;
  candidate.routing = [](const Leg&, int64_t token) {
    std::set<int> experts = RoutedRun::Route(token);
    if (token == kToken) experts.erase(experts.begin());
    return experts;
  };
  reference.Write(Path("ref"));
  candidate.Write(Path("cand"));
  const std::string json = RenderJson(OrDie(RunCheck(Options())));
  EXPECT_THAT(json, HasSubstr("\"flips\""));
  EXPECT_THAT(json, HasSubstr("only_reference"));
  ExpectSame(Options());
}

// Parts are no smaller than a tensor, and as equal as that allows.
TEST_F(PartsTest, AreDisjointAndTogetherAll) {
  const auto paths = RunAll(Options(), 4);
  size_t tensors = 0;
  for (const std::string& path : paths) {
    const auto measured = OrDie(ReadPart(OrDie(ReadPartSummary(path))));
    EXPECT_GT(measured.facts.size(), 0u) << path;
    tensors += measured.facts.size();
  }
  EXPECT_EQ(tensors, OrDie(RunCheck(Options())).tensors.size());
}

TEST_F(PartsTest, ThatAreMissingAreNamedWithTheirCommand) {
  auto paths = RunAll(Options(), 3);
  paths.erase(paths.begin() + 1);
  const std::string command = "ttrace check " + Path("ref") + " " +
                              Path("cand") + " --part 2/3 --out-part " +
                              Path("parts") + "/";
  EXPECT_THAT(Said(paths),
              AllOf(HasSubstr("part 2 of 3 is missing\n  " + command),
                    Not(HasSubstr("part 1 of 3"))));
  // Elsewhere, names that are relative mean something else.
  EXPECT_THAT(Said(paths, "/there"), HasSubstr("cd /here && " + command));
  EXPECT_THAT(Said({}), HasSubstr("no part"));
  fs::create_directory(Path("empty"));
  EXPECT_THAT(Said({Path("empty")}), HasSubstr("empty"));
  EXPECT_THAT(Said({Part(1, 3), Part(3, 3), Path("nowhere")}),
              HasSubstr("nowhere"));
  const auto many = RunAll(Options(), 20);
  EXPECT_THAT(Said({many.front()}),
              AllOf(HasSubstr("part 11 of 20 is missing"),
                    HasSubstr("and 9 more"), Not(HasSubstr("part 12 of 20"))));
}

TEST_F(PartsTest, OptionsAreInTheCommand) {
  CheckOptions options = Options();
  options.iterations = IterationRange{0, 1};
  options.legs = {"noise.1", "noise.2"};
  options.risk = 0.25;
  fs::rename(Path("cand"), Path("a 'b"));
  options.candidate = Path("a 'b");
  const auto paths = RunAll(options, 2);
  EXPECT_THAT(Said({paths[0]}),
              HasSubstr("a '\\''b' --iterations 0:1 --legs "
                        "noise.1,noise.2 --risk 0.25 --part 2/2"));
}

TEST_F(PartsTest, ThatComeTwiceAreNamed) {
  auto paths = RunAll(Options(), 2);
  fs::copy(paths[1], Path("copy"));
  paths.push_back(Path("copy"));
  EXPECT_THAT(Said(paths), AllOf(HasSubstr("part 2 of 2"), HasSubstr("twice"),
                                 HasSubstr(Path("copy"))));
}

TEST_F(PartsTest, ThatAreCutOrDamagedAreNamed) {
  const auto paths = RunAll(Options(), 2);
  const std::string text = FileText(paths[1]);
  const std::string rerun = "--part 2/2 --out-part " + paths[1];
  // The head is whole.
  for (const size_t left : {text.size() - 1, text.size() / 2}) {
    SetFileText(paths[1], text.substr(0, left));
    EXPECT_THAT(Said(paths), AllOf(HasSubstr("part 2 of 2"), HasSubstr("cut"),
                                   HasSubstr(rerun)))
        << left;
  }
  // ... without a look at the traces, which need not be there.
  fs::rename(Path("cand"), Path("away"));
  EXPECT_THAT(Said(paths), AllOf(HasSubstr("cut"), HasSubstr(rerun)));
  fs::rename(Path("away"), Path("cand"));
  SetFileText(paths[1], text + text.substr(text.size() - 17));
  EXPECT_THAT(Said(paths), AllOf(HasSubstr("part 2 of 2"), HasSubstr("damaged"),
                                 HasSubstr(rerun)));
  // Nothing is known of the part but its file.
  SetFileText(paths[1], text.substr(0, 40));
  EXPECT_THAT(Said(paths), AllOf(HasSubstr(paths[1]), HasSubstr("cut")));
  EXPECT_THAT(Said(paths), HasSubstr("part 2 of 2 is missing"));
  SetFileText(paths[1], "# parts\n");
  EXPECT_THAT(Said(paths), AllOf(HasSubstr(paths[1]), HasSubstr("no part")));
  // Any byte.
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    std::string bad = text;
    char& byte = bad[random() % bad.size()];
    byte = static_cast<char>(byte ^ static_cast<char>(1 + random() % 255));
    SetFileText(paths[1], bad);
    EXPECT_FALSE(Merge(paths).ok());
  }
  SetFileText(paths[1], text);
  EXPECT_TRUE(Merge(paths).ok());
}

TEST_F(PartsTest, OfOtherOptionsAreNamed) {
  const CheckOptions options = Options();
  const auto good = RunAll(options, 3);
  const auto said = [&](const CheckOptions& other, int of = 3) {
    const std::string text = FileText(Part(2, 3));
    RunPart(other, HeadOf(other, {2, of}, "/here"), Part(2, 3)).ok();
    std::string words = Said(good);
    SetFileText(Part(2, 3), text);
    return words;
  };
  CheckOptions other = options;
  other.risk = 0.01;
  EXPECT_THAT(said(other), AllOf(HasSubstr("part 2 of 3"),
                                 HasSubstr("--risk 0.01, not 0.001"),
                                 HasSubstr("--part 2/3")));
  other = options;
  other.iterations = IterationRange{0, 1};
  EXPECT_THAT(said(other), HasSubstr("other --iterations"));
  other = options;
  other.legs = {"noise.1"};
  EXPECT_THAT(said(other), HasSubstr("other --legs"));
  EXPECT_THAT(said(options, 2), HasSubstr("of a check in 2 parts, not in 3"));
  other = options;
  other.candidate += "/.";
  EXPECT_THAT(said(other), HasSubstr("has the candidate"));
  other = options;
  other.reference.clear();
  EXPECT_THAT(said(other), HasSubstr("has the reference"));
  other = options;
  other.candidate_legs = {Path("ref")};
  EXPECT_THAT(said(other), HasSubstr("has the candidate"));
}

TEST_F(PartsTest, OfOtherTracesAreNamed) {
  const CheckOptions options = Options();
  const auto paths = RunAll(options, 3);
  const std::string before = FileText(paths[1]);
  const std::string first = FileText(paths[0]);
  // A run of the same shape with other values.
  fs::remove_all(Path("cand"));
  candidate_.noise = 0x1p-23f;
  candidate_.Write(Path("cand"));
  EXPECT_THAT(Said(paths), AllOf(HasSubstr("candidate"),
                                 HasSubstr("is not the trace that the parts"),
                                 HasSubstr("--part 1/3")));
  Run(options, 2, 3);
  EXPECT_THAT(Said(paths),
              AllOf(HasSubstr("part 2 of 3"),
                    HasSubstr("when another trace lay in " + Path("cand"))));
  Run(options, 1, 3);
  Run(options, 3, 3);
  EXPECT_TRUE(Merge(paths).ok());
  // The same of the reference.
  fs::remove_all(Path("ref"));
  reference_.run_id = "other";
  reference_.Write(Path("ref"));
  EXPECT_THAT(Said(paths), HasSubstr("the reference in " + Path("ref")));
  Run(options, 3, 3);
  EXPECT_THAT(Said(paths),
              AllOf(HasSubstr("part 3 of 3"),
                    HasSubstr("another trace lay in " + Path("ref"))));
}

TEST_F(PartsTest, OfAnotherVersionAreNamed) {
  const CheckOptions options = Options();
  const auto paths = RunAll(options, 2);
  PartHead head = HeadOf(options, {2, 2}, "/here");
  head.version = "9.9.9";
  Measurements nothing;
  ASSERT_TRUE(WritePart(paths[1], head, &nothing).ok());
  EXPECT_THAT(Said(paths), AllOf(HasSubstr("part 2 of 2"), HasSubstr("9.9.9"),
                                 HasSubstr("--part 2/2")));
  head = HeadOf(options, {2, 2}, "/here");
  head.format = 99;
  ASSERT_TRUE(WritePart(paths[1], head, &nothing).ok());
  EXPECT_THAT(Said(paths), AllOf(HasSubstr(paths[1]), HasSubstr("format 99")));
}

TEST_F(PartsTest, ThatFailedSayWhy) {
  const CheckOptions options = Options();
  const auto paths = RunAll(options, 2);
  fs::rename(Path("cand"), Path("away"));
  const Status failed =
      RunPart(options, HeadOf(options, {2, 2}, "/here"), paths[1]);
  ASSERT_FALSE(failed.ok());
  fs::rename(Path("away"), Path("cand"));
  EXPECT_THAT(
      Said(paths),
      AllOf(HasSubstr("part 2 of 2"), HasSubstr("failed: "),
            HasSubstr(failed.error().message()), HasSubstr("--part 2/2")));
  // None worked: each still has its command.
  fs::rename(Path("cand"), Path("away"));
  for (const int part : {1, 2}) {
    EXPECT_FALSE(
        RunPart(options, HeadOf(options, {part, 2}, "/here"), Part(part, 2))
            .ok());
  }
  EXPECT_THAT(Said(paths), AllOf(HasSubstr("part 1 of 2"), HasSubstr("part 2"),
                                 HasSubstr("--part 2/2")));
  fs::rename(Path("away"), Path("cand"));
  RunAll(options, 2);
  EXPECT_TRUE(Merge(paths).ok());
}

std::function<void(Measurements*)> OfFirst(
    const std::function<void(TensorFacts*)>& change) {
  return [change](Measurements* measured) {
    TensorFacts first = measured->facts.front();
    change(&first);
    measured->facts.Set(0, first);
  };
}

// What was measured less than whole makes no result, whatever the head says.
TEST_F(PartsTest, ThatLackATensorAreNoResult) {
  const CheckOptions options = Options();
  const auto paths = RunAll(options, 2);
  const PartSummary part = OrDie(ReadPartSummary(paths[1]));
  const auto written = [&](const std::function<void(Measurements*)>& change) {
    Measurements measured = OrDie(ReadPart(part));
    change(&measured);
    EXPECT_TRUE(WritePart(paths[1], part.head, &measured).ok());
    std::string said = Said(paths);
    Run(options, 2, 2);
    return said;
  };
  EXPECT_EQ(written([](Measurements*) {}), "no error");
  for (const auto& change : std::vector<std::function<void(Measurements*)>>{
           [](Measurements* m) { m->facts.pop_back(); },
           [](Measurements* m) { m->facts.push_back(m->facts.back()); },
           OfFirst([](TensorFacts* f) { ++f->order; }),
           OfFirst([](TensorFacts* f) { f->id.fqn += "x"; }),
           OfFirst([](TensorFacts* f) { f->legs.front().plan = 9; }),
           OfFirst([](TensorFacts* f) { f->candidate_shape = {1}; }),
           [](Measurements* m) { m->squares[m->facts.front().id] = {}; }}) {
    EXPECT_THAT(written(change), HasSubstr("do not hold"));
  }
}

// Nor does what no measurement gives, with a checksum that is right.
TEST_F(PartsTest, ThatAreForgedAreNamed) {
  const CheckOptions options = Options();
  {
    const auto whole = RunAll(options, 1);
    const PartSummary one = OrDie(ReadPartSummary(whole[0]));
    Measurements moved = OrDie(ReadPart(one));
    TensorFacts last = moved.facts.back();
    last.order += 1000;
    moved.facts.Set(moved.facts.size() - 1, last);
    ASSERT_TRUE(WritePart(whole[0], one.head, &moved).ok());
    EXPECT_THAT(Said(whole), HasSubstr("do not hold"));
  }
  const auto paths = RunAll(options, 2);
  const PartSummary part = OrDie(ReadPartSummary(paths[1]));
  const Measurements good = OrDie(ReadPart(part));
  for (const auto& [region, copies] : {std::pair(99, 1), std::pair(0, 0)}) {
    Measurements measured = good;
    TensorFacts first = measured.facts.front();
    InstanceStats& instance = first.legs.front().candidate.instances.front();
    instance.region = region;
    instance.copies = copies;
    measured.facts.Set(0, first);
    ASSERT_TRUE(WritePart(paths[1], part.head, &measured).ok());
    EXPECT_THAT(Said(paths),
                AllOf(HasSubstr("part 2 of 2"), HasSubstr("damaged")));
  }
  for (const Share& share : {Share{0, 2}, Share{3, 2}, Share{1, 2'000'000}}) {
    PartHead head = part.head;
    head.share = share;
    Measurements nothing;
    ASSERT_TRUE(WritePart(paths[1], head, &nothing).ok());
    EXPECT_THAT(Said(paths), AllOf(HasSubstr(paths[1] + " is damaged"),
                                   HasSubstr("part 2 of 2 is missing")));
  }
}

TEST_F(PartsTest, ReplaceNothingThatIsNotAPart) {
  const CheckOptions options = Options();
  SetFileText(Path("notes.txt"), "mine");
  const Status done =
      RunPart(options, HeadOf(options, {1, 2}, "/here"), Path("notes.txt"));
  ASSERT_FALSE(done.ok());
  EXPECT_THAT(done.error().message(), HasSubstr("not replaced"));
  EXPECT_EQ(FileText(Path("notes.txt")), "mine");
}

// A writer that was ended leaves nothing that looks like a part.
TEST_F(PartsTest, HalfWrittenOnesAreNotSeen) {
  const auto paths = RunAll(Options(), 2);
  SetFileText(paths[1] + ".0123456789abcdef.tmp", "ttrace part\n");
  EXPECT_TRUE(Merge({Path("parts")}).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(Path("parts")),
                          fs::directory_iterator()),
            3);
}

TEST(PartPath, IsInAFolderOrItself) {
  const ScratchFolder folder;
  EXPECT_EQ(PartPath(folder.path(), {3, 8}),
            folder / "part-00003-of-00008.ttpart");
  EXPECT_EQ(PartPath("new/", {3, 8}), "new/part-00003-of-00008.ttpart");
  EXPECT_EQ(PartPath("new", {3, 8}), "new");
}

}  // namespace
}  // namespace ttrace::parts_test
