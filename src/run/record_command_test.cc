#include "src/run/record_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "src/experiment/iteration_range.h"
#include "src/experiment/leg_names.h"
#include "src/experiment/selection.h"
#include "src/run/capture_watch.h"
#include "src/run/folder_lock.h"
#include "src/run/free_space.h"
#include "src/run/orphan_ranks.h"
#include "src/run/output_folder.h"
#include "src/trace/writer.h"

namespace ttrace::record_command_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class LaunchRecordTest : public testing::Test {
 protected:
  LaunchRecordTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) /
              ("record." + std::to_string(getpid()) + "." + info->name());
    fs::create_directories(folder_);
    options_.folder = Path("trace");
    fs::create_directories(options_.folder);
    options_.hook_folder = "/hook";
    options_.environment = {"PATH=/usr/bin:/bin", "PYTHONPATH=/mine",
                            "TTRACE_OUT=/outer", "TTRACE_SELECT=fqn=x"};
    options_.log_file = Path("log");
  }
  ~LaunchRecordTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) { return folder_ / name; }

  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }

  std::string Log() {
    std::ifstream file(Path("log"));
    return std::string((std::istreambuf_iterator<char>(file)), {});
  }

  std::unique_ptr<TraceWriter> Rank(int rank, int world_size) {
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = world_size;
    meta.mesh.dims = {{"dp", world_size}};
    meta.coordinate = {rank};
    auto writer = TraceWriter::Open(options_.folder, meta);
    EXPECT_TRUE(writer.ok());
    return *std::move(writer);
  }

  fs::path folder_;
  RecordOptions options_;
};

TEST_F(LaunchRecordTest, RanksAreToldWhatToDo) {
  options_.argv = {"/bin/sh", "-c", "env"};
  options_.legs = {"replay", "noise.1"};
  options_.graft = "/ref";
  ASSERT_TRUE(RecordCommand(options_).ok());
  const std::string log = Log();
  for (const std::string& entry :
       {std::string("PYTHONPATH=/hook:/mine\n"),
        "TTRACE_OUT=" + options_.folder + "\n",
        std::string("TTRACE_ITERATIONS=0:2\n"),
        std::string("TTRACE_LEGS=replay,noise.1\n"),
        std::string("TTRACE_LEG=real\n"), std::string("TTRACE_GRAFT=/ref\n"),
        std::string("TTRACE_GRAFT_WHAT=weights,data\n")}) {
    EXPECT_THAT(log, HasSubstr(entry));
  }
  EXPECT_THAT(log, Not(HasSubstr("TTRACE_SELECT"))) << "of an outer run";
  EXPECT_TRUE(fs::exists(options_.folder + "/manifest.json"));
}

TEST_F(LaunchRecordTest, ACommandThatCapturesNothingIsExplained) {
  options_.argv = {"/bin/true"};
  const auto outcome = RecordCommand(options_);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(ShellExitCode(outcome->launch), 0);
  EXPECT_THAT(outcome->capture.problem, HasSubstr("PYTHONPATH"));
}

TEST_F(LaunchRecordTest, TheWatchWaitsForTheEndLineOfEveryRank) {
  CaptureWatch watch(options_.folder);
  watch.Update();
  EXPECT_FALSE(watch.AllClosed()) << "no rank is there";

  auto first = Rank(0, 2);
  ASSERT_TRUE(first->Note("notice", R"({"text":"hello"})").ok());
  watch.Update();
  EXPECT_EQ(watch.world_size(), 2);
  EXPECT_EQ(watch.ranks_closed(), 0);

  ASSERT_TRUE(first->Close(true, "").ok());
  watch.Update();
  EXPECT_EQ(watch.ranks_closed(), 1);
  EXPECT_FALSE(watch.AllClosed()) << "rank 1 has not started";

  ASSERT_TRUE(Rank(1, 2)->Close(false, "the disk is full").ok());
  watch.Update();
  EXPECT_TRUE(watch.AllClosed()) << "a rank that gave up is done too";

  auto restarted = Rank(1, 2);
  watch.Update();
  EXPECT_FALSE(watch.AllClosed()) << "the restart counts";
}

TEST_F(LaunchRecordTest, TheSummaryCountsIterationsThatEveryRankSealed) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  auto first = Rank(0, 2);
  auto second = Rank(1, 2);
  ASSERT_TRUE(first->Note("replayer", R"({"name":"none"})").ok());
  ASSERT_TRUE(first->Note("leg_skipped", R"({"leg":"fp32"})").ok());
  ASSERT_TRUE(first->Seal(0, "real").ok());
  ASSERT_TRUE(first->Seal(1, "real").ok());
  ASSERT_TRUE(second->Seal(0, "real").ok());
  ASSERT_TRUE(first->Close(true, "").ok());
  ASSERT_TRUE(second->Close(false, "the disk is full").ok());
  const CaptureSummary summary =
      SummarizeCapture(options_.folder, "real", {0, 2});
  EXPECT_EQ(summary.problem, "");
  EXPECT_EQ(summary.iterations, 1);
  EXPECT_EQ(summary.world_size, 2);
  EXPECT_TRUE(summary.one_launch_per_leg);
  EXPECT_THAT(summary.skipped_legs, ElementsAre("fp32"));
  EXPECT_THAT(summary.warnings,
              UnorderedElementsAre(HasSubstr("only 1 of the 2"),
                                   HasSubstr("the disk is full")));
}

TEST_F(LaunchRecordTest, ForceNeverEmptiesAFolderInUse) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  ASSERT_TRUE(CreateTraceFolder(Path("report/reference"), "{}", false).ok());
  {
    const auto lock = FolderLock::Take(options_.folder);
    ASSERT_TRUE(lock.ok());
    const auto inner = FolderLock::Take(Path("report/reference"));
    ASSERT_TRUE(inner.ok());
    const auto refused =
        PrepareFolder(options_.folder, FolderKind::kTrace, true);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message(), HasSubstr("is in use"));
    EXPECT_FALSE(PrepareFolder(Path("report"), FolderKind::kReport, true).ok())
        << "a trace in it is being written";
    EXPECT_TRUE(fs::exists(Path("report/reference/manifest.json")));
  }
  EXPECT_TRUE(PrepareFolder(options_.folder, FolderKind::kTrace, true).ok());
  EXPECT_TRUE(PrepareFolder(Path("report"), FolderKind::kReport, true).ok());
}

// Its ttrace is gone, and with it the lock.
TEST_F(LaunchRecordTest, ForceNeverEmptiesAFolderThatAnOrphanWritesTo) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  LaunchOptions launch;
  launch.run_id = folder_.filename().string();
  launch.environment = {"PATH=/usr/bin:/bin", "TTRACE_RUN_ID=" + launch.run_id,
                        "TTRACE_OUT=" + options_.folder, "TTRACE_LOCKS=1"};
  launch.argv = {"/bin/sh", "-c",
                 "setsid sleep 60 & "
                 "while [ \"$(cat /proc/$!/comm)\" != sleep ]; do :; done"};
  const auto outcome = Launch(launch);
  ASSERT_TRUE(outcome.ok());
  ASSERT_EQ(outcome->survivors.size(), 1U);
  const std::string pid = std::to_string(outcome->survivors[0].pid);
  const auto refused = PrepareFolder(options_.folder, FolderKind::kTrace, true);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("process " + pid));
  EXPECT_TRUE(fs::exists(options_.folder + "/manifest.json"));
  const auto is_it = [&](const RunProcess& process) {
    return process.run_id == launch.run_id;
  };
  EXPECT_EQ(std::ranges::count_if(FindOrphans(), is_it), 1);
  {
    const auto lock = FolderLock::Take(options_.folder);
    EXPECT_EQ(std::ranges::count_if(FindOrphans(), is_it), 0)
        << "somebody holds it";
  }
  EXPECT_EQ(EndRunProcesses(launch.run_id, 1), 1);
  EXPECT_TRUE(PrepareFolder(options_.folder, FolderKind::kTrace, true).ok());
}

TEST_F(LaunchRecordTest, ACrashIsNamedByItsOwnError) {
  options_.argv = {"/bin/sh", "-c",
                   "echo 'Traceback (most recent call last):'; "
                   "echo '  File \"train.py\"'; "
                   "echo 'TypeError: no such argument'; exit 1"};
  const auto outcome = RecordCommand(options_);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(DescribeEnd(*outcome),
            "exited with code 1: TypeError: no such argument");
}

// Whoever records to a terminal has no log: the process left it in the trace.
TEST_F(LaunchRecordTest, ACrashIsNamedWithoutALogToo) {
  RecordOutcome outcome;
  outcome.launch.exit_code = 1;
  Write("trace/messages.jsonl",
        "{\"kind\":\"loaded\"}\n"
        "{\"kind\":\"error\",\"rank\":\"\",\"text\":\"ChildFailedError: x\"}\n"
        "{\"kind\":\"error\",\"rank\":\"1\",\"text\":\"TypeError: y\"}\n"
        "not json\n[1]\n{\"kind\":7,\"rank\":{}}\n");
  outcome.capture = SummarizeCapture(options_.folder, "real", {0, 2});
  EXPECT_EQ(DescribeEnd(outcome), "exited with code 1: rank 1: TypeError: y");
}

TEST_F(LaunchRecordTest, EachCauseOfNothingHasItsOwnWords) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  const auto problem = [&](const std::string& messages) {
    Write("trace/messages.jsonl", messages);
    return SummarizeCapture(options_.folder, "real", {0, 2}).problem;
  };
  EXPECT_THAT(problem(""), HasSubstr("PYTHONPATH"));
  const std::string loaded = "{\"kind\":\"loaded\"}\n";
  const std::string refused = problem(
      loaded + "{\"kind\":\"refused\",\"rank\":\"0\",\"text\":\"a GAN\"}\n");
  EXPECT_EQ(refused, "capture refused: rank 0: a GAN");
  EXPECT_THAT(problem(loaded + "{\"kind\":\"ended\",\"torch\":true}\n"),
              AllOf(HasSubstr("ttrace.attach"), Not(HasSubstr("PYTHONPATH"))));
  EXPECT_THAT(problem(loaded + "{\"kind\":\"ended\",\"torch\":true,"
                               "\"framework\":true}\n"),
              AllOf(HasSubstr("no training step began"),
                    Not(HasSubstr("ttrace.attach"))));
  EXPECT_THAT(problem(loaded + "{\"kind\":\"ended\",\"torch\":false}\n"),
              HasSubstr("neither torch nor megatron.core"));
  EXPECT_THAT(problem(loaded), HasSubstr("before its first training step"));
}

TEST_F(LaunchRecordTest, ALoopThatEndsBeforeWhatIsCapturedSaysHowLongItWas) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  const auto problem = [&](const std::string& ran, const std::string& more) {
    Write("trace/messages.jsonl",
          "{\"kind\":\"loaded\"}\n" + more +
              "{\"kind\":\"ended\",\"torch\":true,\"iterations\":" + ran +
              "}\n");
    return SummarizeCapture(options_.folder, "real", {5, 6}).problem;
  };
  EXPECT_EQ(problem("3", ""),
            "the loop ran 3 iterations, and iterations 5:6 were asked for, "
            "which count from 0.\n  Let it run longer, or give --iterations "
            "0:2.");
  EXPECT_THAT(problem("1", ""), HasSubstr("give --iterations 0:1"));
  EXPECT_THAT(problem("0", ""), HasSubstr("its optimizer took no step"));
  EXPECT_THAT(problem("3", "{\"kind\":\"error\",\"text\":\"x\"}\n"),
              AllOf(HasSubstr("the command failed before"),
                    HasSubstr("the loop ran 3 iterations")));
  // A number that explains nothing is not said.
  EXPECT_THAT(problem("9", ""), HasSubstr("ttrace.attach"));
}

TEST_F(LaunchRecordTest, WhatHoldsForAllRanksIsSaidOnce) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  for (int number = 0; number < 4; ++number) {
    auto rank = Rank(number, 4);
    ASSERT_TRUE(rank->Seal(0, "real").ok());
    ASSERT_TRUE(rank->Close(false, number == 2 ? "killed" : "no more").ok());
  }
  EXPECT_THAT(SummarizeCapture(options_.folder, "real", {0, 2}).warnings,
              ElementsAre(HasSubstr("only 1 of the 2"),
                          "ranks 0-1, 3 stopped capturing: no more",
                          "rank 2 stopped capturing: killed"));
}

TEST_F(LaunchRecordTest, WhatARankRefusedIsSaidWithTheWayOut) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  auto rank = Rank(0, 1);
  ASSERT_TRUE(rank->Note("unsupported", R"({"what":"a distributed optimizer",)"
                                        R"("reason":"gradients are sharded",)"
                                        R"("way_out":"run with --no-x"})")
                  .ok());
  ASSERT_TRUE(rank->Close(false, "stopped").ok());
  EXPECT_EQ(SummarizeCapture(options_.folder, "real", {0, 2}).problem,
            "no rank completed a training iteration:\n"
            "  - rank 0: a distributed optimizer is not supported: "
            "gradients are sharded; run with --no-x\n"
            "  - rank 0: stopped");
}

TEST_F(LaunchRecordTest, WhatIsUnsupportedIsSaidOfARunThatWasCapturedToo) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  for (int number = 0; number < 2; ++number) {
    auto rank = Rank(number, 2);
    ASSERT_TRUE(rank->Note("unsupported", R"({"what":"FP8","reason":"r",)"
                                          R"("way_out":"take bf16"})")
                    .ok());
    ASSERT_TRUE(rank->Seal(0, "real").ok());
    ASSERT_TRUE(rank->Close(true, "").ok());
  }
  const CaptureSummary summary =
      SummarizeCapture(options_.folder, "real", {0, 1});
  EXPECT_EQ(summary.problem, "");
  EXPECT_THAT(summary.unsupported,
              ElementsAre("all 2 ranks: FP8 is not supported: r; take bf16"));
}

TEST_F(LaunchRecordTest, WhatWasReplacedIsSaidWithTheWayOut) {
  const auto words = [](std::set<std::string> replaced) {
    CaptureSummary summary;
    summary.replaced = std::move(replaced);
    return ReplacedWords(summary, "--take");
  };
  EXPECT_EQ(words({}), "");
  EXPECT_THAT(words({"weights", "data"}),
              AllOf(HasSubstr("the reference's weights and data in place"),
                    HasSubstr("with --take weights it keeps its own data")));
  EXPECT_THAT(words({"data"}), HasSubstr("with --take none"));
  EXPECT_THAT(words({"weights"}),
              AllOf(HasSubstr("--take none"), Not(HasSubstr("indices"))));

  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  auto rank = Rank(0, 1);
  ASSERT_TRUE(rank->Note("graft_begins", R"({"what":"data"})").ok());
  ASSERT_TRUE(rank->Close(false, "IndexError: index 9").ok());
  EXPECT_THAT(SummarizeCapture(options_.folder, "real", {0, 2}).replaced,
              ElementsAre("data"))
      << "also of a run that captured nothing";
}

TEST_F(LaunchRecordTest, AFirstStepIsTheCommandsOwnAndOneIteration) {
  options_.argv = {"/bin/sh", "-c", "env"};
  options_.legs = {"replay", "noise.1"};
  options_.graft = "/ref";
  options_.as_reference = true;
  options_.keep_values = true;
  options_.iterations = {3, 9};
  options_.dropout_off = true;
  fs::create_directories(Path("first"));
  const RecordOptions first = FirstStepOf(options_, Path("first"));
  ASSERT_TRUE(RecordCommand(first).ok());
  std::ifstream file(Path("first.log"));
  const std::string log((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(
      log,
      AllOf(HasSubstr("TTRACE_ITERATIONS=0:1\n"), HasSubstr("TTRACE_LEGS=\n"),
            HasSubstr("TTRACE_MODE=bitwise\n"),
            HasSubstr("TTRACE_DROPOUT=off\n"), Not(HasSubstr("TTRACE_GRAFT")),
            Not(HasSubstr("TTRACE_KEEP_VALUES"))));
}

TEST_F(LaunchRecordTest, ARunThatRefusedIsEndedAtOnce) {
  auto rank = Rank(0, 1);
  ASSERT_TRUE(rank->Note("unsupported", R"({"what":"FSDP"})").ok());
  ASSERT_TRUE(rank->Close(false, "Unsupported: FSDP").ok());
  fs::rename(options_.folder, Path("made"));
  fs::create_directories(options_.folder);
  options_.argv = {"/bin/sh", "-c",
                   "cp -r " + Path("made") + "/rank* $TTRACE_OUT; sleep 60"};
  options_.end_when_captured = true;
  const auto outcome = RecordCommand(options_);
  ASSERT_TRUE(outcome.ok());
  EXPECT_LT(outcome->launch.seconds, LaunchOptions().grace_seconds);
  EXPECT_EQ(DescribeEnd(*outcome), "was ended because its capture had stopped");
}

TEST_F(LaunchRecordTest, WhatEndedACaptureIsNotSaidTwice) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  auto rank = Rank(0, 1);
  ASSERT_TRUE(
      rank->Note("unsupported", R"({"what":"FSDP","reason":"r"})").ok());
  ASSERT_TRUE(rank->Close(false, "Unsupported: FSDP: r").ok());
  EXPECT_EQ(SummarizeCapture(options_.folder, "real", {0, 2}).problem,
            "no rank completed a training iteration: "
            "rank 0: FSDP is not supported: r");
}

TEST(Legs, AreExpandedInOrderAndOnce) {
  const auto legs = ExpandLegs("real,replay,noise:2,fp32,fp32.noise:2,noise.1");
  ASSERT_TRUE(legs.ok());
  EXPECT_THAT(*legs, ElementsAre("replay", "noise.1", "noise.2", "fp32",
                                 "fp32.noise.1", "fp32.noise.2"));
  EXPECT_THAT(*ExpandLegs("isolated,isolated.noise:2,fp32.isolated,"
                          "fp32.isolated.noise.3"),
              ElementsAre("isolated", "isolated.noise.1", "isolated.noise.2",
                          "fp32.isolated", "fp32.isolated.noise.3"));
  EXPECT_THAT(*ExpandLegs(""), IsEmpty());
  EXPECT_THAT(*ExpandLegs("none"), IsEmpty());
}

TEST(Legs, UnknownWordsAreErrors) {
  for (const char* text : {"noise:", "noise:0", "noise:x", "noise:1000", "nose",
                           "fp32.noise.0", "noise:2:3", "noisex", "isolated:2",
                           "isolated.noise.0", "isolatednoise"}) {
    const auto legs = ExpandLegs(text);
    ASSERT_FALSE(legs.ok()) << text;
    EXPECT_THAT(legs.error().message(), HasSubstr("unknown leg"));
  }
  EXPECT_TRUE(ExpandLegs(kReferenceLegs).ok());
  EXPECT_TRUE(ExpandLegs(kCandidateLegs).ok());
}

TEST(Iterations, AreHalfOpenAndNeverEmpty) {
  const auto range = ParseIterations("3:5");
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->begin, 3);
  EXPECT_EQ(range->count(), 2);
  for (const char* text :
       {"", "2", "2:", ":2", "2:2", "3:1", "-1:2", "0:2x", "0:99999999999"}) {
    EXPECT_FALSE(ParseIterations(text).ok()) << text;
  }
}

TEST(Selection, NamesKnownKeys) {
  EXPECT_TRUE(CheckSelection("fqn=*layers.0*;role=output").ok());
  EXPECT_TRUE(CheckSelection("").ok());
  EXPECT_FALSE(CheckSelection("layer=0").ok());
  EXPECT_FALSE(CheckSelection("output").ok());
}

TEST_F(LaunchRecordTest, AFolderWithContentIsRefused) {
  Write("out/notes.txt", "mine");
  const auto refused = PrepareFolder(Path("out"), FolderKind::kTrace, false);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("--force"));
}

TEST_F(LaunchRecordTest, ForceRemovesATraceAndNothingElse) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  ASSERT_TRUE(Rank(0, 1)->Close(true, "").ok());
  ASSERT_TRUE(
      CreateTraceFolder(LegFolder(options_.folder, "fp32"), "{}", false).ok());
  EXPECT_THAT(FindLegFolders(options_.folder),
              ElementsAre(LegFolder(options_.folder, "fp32")));

  // A foreign file anywhere: nothing is removed.
  Write("trace/rank-00000.r0/thesis.tex", "mine");
  EXPECT_FALSE(PrepareFolder(options_.folder, FolderKind::kTrace, true).ok());
  EXPECT_TRUE(fs::exists(options_.folder + "/manifest.json"));
  fs::remove(options_.folder + "/rank-00000.r0/thesis.tex");

  ASSERT_TRUE(PrepareFolder(options_.folder, FolderKind::kTrace, true).ok());
  EXPECT_TRUE(fs::is_empty(options_.folder));
}

TEST_F(LaunchRecordTest, ForceNeverFollowsALink) {
  ASSERT_TRUE(CreateTraceFolder(options_.folder, "{}", false).ok());
  Write("elsewhere/meta.json", "{}");
  fs::create_directory_symlink(Path("elsewhere"),
                               options_.folder + "/rank-00000.r0");
  EXPECT_FALSE(PrepareFolder(options_.folder, FolderKind::kTrace, true).ok());
  EXPECT_TRUE(fs::exists(Path("elsewhere/meta.json")));
}

TEST_F(LaunchRecordTest, AFullDiskIsNamedWithWhatIsLeft) {
  // tests/cli fills one. What is no disk has nothing to be left.
  EXPECT_EQ(FullDiskWords("/proc"), "");
  EXPECT_EQ(FullDiskWords(Path("absent")), "");
}

TEST_F(LaunchRecordTest, ForceRemovesAReportThatCanProveIt) {
  Write("report/report.txt", "WITHIN");
  EXPECT_FALSE(PrepareFolder(Path("report"), FolderKind::kReport, true).ok());
  Write("report/result.json", R"({"schema": 1, "verdict": "within"})");
  Write("report/index.html", "<html>somebody's</html>");
  EXPECT_FALSE(PrepareFolder(Path("report"), FolderKind::kReport, true).ok());
  Write("report/index.html",
        "<!doctype html>\n<meta name=generator content=ttrace>");
  EXPECT_TRUE(PrepareFolder(Path("report"), FolderKind::kReport, true).ok());
  EXPECT_TRUE(fs::is_empty(Path("report")));
  // What a diff leaves that its candidate's first step ended.
  Write("report/first_step/manifest.json", R"({"format": "ttrace"})");
  Write("report/first_step.log", "output");
  EXPECT_TRUE(PrepareFolder(Path("report"), FolderKind::kReport, true).ok());
  EXPECT_TRUE(fs::is_empty(Path("report")));
}

}  // namespace
}  // namespace ttrace::record_command_test
