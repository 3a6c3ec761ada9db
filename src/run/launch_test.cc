#include "src/run/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "src/run/orphan_ranks.h"

namespace ttrace::launch_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ending = LaunchOutcome::Ending;
using Wish = LaunchOptions::Wish;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("launch." + std::to_string(getpid()) + "." + info->name());
    std::filesystem::create_directories(folder_);
    // Other tests run at the same time: the id must be this test's own.
    options_.run_id = folder_.filename().string();
    options_.environment = {"PATH=/usr/bin:/bin",
                            "TTRACE_RUN_ID=" + options_.run_id};
    options_.log_file = Path("log");
    options_.grace_seconds = 5;
  }
  ~LaunchTest() override {
    EndRunProcesses(options_.run_id, 0);
    std::filesystem::remove_all(folder_);
  }

  std::string Path(const std::string& name) { return folder_ / name; }

  // A command that ends when a process in a session of its own is up: while one
  // is being started, it has no environment to be known by.
  static std::string LeaveSomething() {
    return "setsid sleep 60 & "
           "while [ \"$(cat /proc/$!/comm)\" != sleep ]; do sleep 0.01; done";
  }

  LaunchOutcome Run(const std::string& command) {
    options_.argv = {"/bin/sh", "-c", command};
    const Result<LaunchOutcome> outcome = Launch(options_);
    EXPECT_TRUE(outcome.ok());
    return outcome.ok() ? *outcome : LaunchOutcome{};
  }

  std::filesystem::path folder_;
  LaunchOptions options_;
};

TEST_F(LaunchTest, ExitCodeAndOutputAreTheCommandsOwn) {
  const LaunchOutcome outcome = Run("echo out; echo err >&2; exit 7");
  EXPECT_EQ(outcome.ending, Ending::kExited);
  EXPECT_EQ(ShellExitCode(outcome), 7);
  EXPECT_EQ(ReadAll(Path("log")), "out\nerr\n");
  EXPECT_EQ(Describe(outcome), "exited with code 7");
}

TEST_F(LaunchTest, ASignalIsReportedAsAShellDoes) {
  const LaunchOutcome outcome = Run("kill -SEGV $$");
  EXPECT_EQ(outcome.ending, Ending::kSignalled);
  EXPECT_EQ(ShellExitCode(outcome), 128 + SIGSEGV);
  EXPECT_EQ(Describe(outcome), "was killed by SIGSEGV");
}

TEST_F(LaunchTest, ACommandThatDoesNotExistIsAnError) {
  options_.argv = {"/no/such/command"};
  const Result<LaunchOutcome> outcome = Launch(options_);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(outcome.error().message(), HasSubstr("/no/such/command"));
}

TEST_F(LaunchTest, TheCommandSeesOnlyTheGivenEnvironment) {
  options_.environment.push_back("GIVEN=1");
  setenv("TTRACE_TEST_NOT_GIVEN", "1", 1);
  Run("echo $GIVEN.$TTRACE_TEST_NOT_GIVEN");
  EXPECT_EQ(ReadAll(Path("log")), "1.\n");
}

TEST_F(LaunchTest, InputIsEmptyWhereOutputIsLogged) {
  Run("cat; echo end");
  EXPECT_EQ(ReadAll(Path("log")), "end\n");
}

TEST_F(LaunchTest, IgnoredSignalsOfThisProcessAreNotInherited) {
  const auto old = signal(SIGPIPE, SIG_IGN);
  Run("grep SigIgn /proc/self/status");
  signal(SIGPIPE, old);
  const std::string line = ReadAll(Path("log"));
  const unsigned long long ignored =
      std::stoull(line.substr(line.find_last_of(" \t") + 1), nullptr, 16);
  EXPECT_EQ(ignored & (1ULL << (SIGPIPE - 1)), 0ULL) << line;
}

TEST_F(LaunchTest, EndsTheCommandOnceFinished) {
  options_.look = [&] {
    return std::filesystem::exists(Path("ready")) ? Wish::kEnd : Wish::kGoOn;
  };
  const LaunchOutcome outcome =
      Run("touch " + Path("ready") + "; sleep 60; echo too late");
  EXPECT_EQ(outcome.ending, Ending::kFinished);
  EXPECT_EQ(ShellExitCode(outcome), 0);
  EXPECT_LT(outcome.seconds, 30);
  EXPECT_EQ(ReadAll(Path("log")), "");
  EXPECT_THAT(FindRunProcesses(options_.run_id), ElementsAre());
}

TEST_F(LaunchTest, ACommandThatIgnoresSigtermIsKilled) {
  options_.grace_seconds = 0.3;
  options_.look = [&] {
    return std::filesystem::exists(Path("ready")) ? Wish::kEnd : Wish::kGoOn;
  };
  const LaunchOutcome outcome = Run("trap '' TERM; touch " + Path("ready") +
                                    "; while true; do sleep 1; done");
  EXPECT_EQ(outcome.ending, Ending::kFinished);
  EXPECT_THAT(FindRunProcesses(options_.run_id), ElementsAre());
}

TEST_F(LaunchTest, EndsWhatIsLeftInSessionsOfItsOwn) {
  options_.end_leftovers = true;
  const LaunchOutcome outcome = Run(LeaveSomething());
  EXPECT_EQ(outcome.ending, Ending::kExited);
  EXPECT_EQ(outcome.leftovers, 1);
  EXPECT_THAT(FindRunProcesses(options_.run_id), ElementsAre());
}

TEST_F(LaunchTest, LeavesWhatOutlivesARecordedCommandAlone) {
  const LaunchOutcome outcome = Run(LeaveSomething());
  EXPECT_EQ(outcome.leftovers, 0);
  EXPECT_EQ(FindRunProcesses(options_.run_id).size(), 1U);
}

TEST_F(LaunchTest, AnInterruptIsForwardedAndLeavesNothing) {
  // In the background of a script it may be ignored, and whoever inherits that
  // cannot undo it.
  signal(SIGINT, SIG_DFL);
  InterruptFlag flag;
  options_.interrupt = &flag;
  std::thread user([&] {
    while (!std::filesystem::exists(Path("ready"))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    flag.signal = SIGINT;
    flag.count = 1;
  });
  // Ready once it has a session of its own. A shell that runs a command in the
  // foreground may lose an interrupt; one that waits does not.
  const LaunchOutcome outcome =
      Run("trap 'echo got it; exit 3' INT; setsid sh -c 'touch " +
          Path("ready") + "; exec sleep 60' & wait");
  user.join();
  EXPECT_EQ(outcome.ending, Ending::kInterrupted);
  EXPECT_EQ(ShellExitCode(outcome), 130);
  EXPECT_EQ(outcome.leftovers, 1);
  EXPECT_THAT(ReadAll(Path("log")), HasSubstr("got it"));
  EXPECT_THAT(FindRunProcesses(options_.run_id), ElementsAre());
}

TEST_F(LaunchTest, AnotherRunsProcessesAreNotFound) {
  Run("setsid sleep 60 & exit 0");
  // The same beginning, and the same end.
  EXPECT_THAT(FindRunProcesses(options_.run_id + "0"), ElementsAre());
  EXPECT_THAT(FindRunProcesses(options_.run_id.substr(1)), ElementsAre());
  EXPECT_THAT(
      FindRunProcesses(options_.run_id.substr(0, options_.run_id.size() - 1)),
      ElementsAre());
}

TEST_F(LaunchTest, ACommandThatTakesTooLongIsEnded) {
  options_.timeout_seconds = 0.5;
  const LaunchOutcome outcome =
      Run("setsid sleep 60 & echo before; sleep 60; echo after");
  EXPECT_EQ(outcome.ending, Ending::kTimedOut);
  EXPECT_EQ(ShellExitCode(outcome), 124);
  EXPECT_LT(outcome.seconds, 20);
  EXPECT_EQ(outcome.output_tail, "before\n");
  EXPECT_THAT(Describe(outcome), HasSubstr("was ended after"));
  EXPECT_THAT(FindRunProcesses(options_.run_id), ElementsAre());
}

TEST_F(LaunchTest, ACommandWhoseCaptureStoppedMayEndByItself) {
  options_.look = [] { return Wish::kEndSoon; };
  const LaunchOutcome by_itself = Run("sleep 1; echo said; exit 3");
  EXPECT_EQ(by_itself.ending, Ending::kExited);
  EXPECT_EQ(by_itself.exit_code, 3);
  EXPECT_EQ(by_itself.output_tail, "said\n");
  options_.grace_seconds = 0.3;
  const LaunchOutcome ended = Run("sleep 60");
  EXPECT_EQ(ended.ending, Ending::kStopped);
}

TEST_F(LaunchTest, OutputThatADiskDoesNotTakeIsKnownAllTheSame) {
  options_.log_file = "/dev/full";
  const LaunchOutcome outcome = Run("echo cannot write: disk full; exit 1");
  EXPECT_EQ(outcome.output_tail, "cannot write: disk full\n");
  EXPECT_THAT(outcome.log_problem, HasSubstr("No space"));
}

TEST_F(LaunchTest, TheTailOfLongOutputIsItsEnd) {
  const LaunchOutcome outcome = Run("seq 1 200000");
  EXPECT_TRUE(outcome.output_tail.ends_with("199999\n200000\n"));
  EXPECT_LT(outcome.output_tail.size(), 200U << 10);
  EXPECT_EQ(std::filesystem::file_size(Path("log")), 1288895U);
}

TEST_F(LaunchTest, RanksOfALauncherThatWasKilledAreEnded) {
  const LaunchOutcome outcome = Run(LeaveSomething() + "; kill -KILL $$");
  EXPECT_EQ(outcome.ending, Ending::kSignalled);
  EXPECT_EQ(outcome.leftovers, 1);
  EXPECT_THAT(FindRunProcesses(options_.run_id), ElementsAre());
}

TEST_F(LaunchTest, WhatOutlivesACommandIsNamed) {
  const LaunchOutcome outcome = Run(LeaveSomething());
  ASSERT_EQ(outcome.survivors.size(), 1U);
  EXPECT_EQ(outcome.survivors[0].run_id, options_.run_id);
  EXPECT_EQ(outcome.survivors[0].pid, FindRunProcesses(options_.run_id)[0]);
}

// SIGKILL gives the process that launches no chance to end the run.
TEST_F(LaunchTest, ARunDoesNotOutliveTheProcessThatLaunchedIt) {
  options_.grace_seconds = 0.5;
  const pid_t launcher = fork();
  if (launcher == 0) {
    options_.argv = {"/bin/sh", "-c",
                     "setsid sleep 60 & touch " + Path("ready") + "; sleep 60"};
    (void)Launch(options_).ok();
    _exit(0);
  }
  while (!std::filesystem::exists(Path("ready")) ||
         FindRunProcesses(options_.run_id).size() < 3) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!FindRunProcesses(options_.run_id).empty() &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_THAT(FindRunProcesses(options_.run_id), ElementsAre());
}

TEST(LastLines, AreSafeToPrint) {
  EXPECT_THAT(LastLines("one\ntwo\n\033[31mthree\nfour", 2),
              ElementsAre("\\x1b[31mthree", "four"));
  EXPECT_THAT(LastLines("", 2), ElementsAre());
}

}  // namespace
}  // namespace ttrace::launch_test
