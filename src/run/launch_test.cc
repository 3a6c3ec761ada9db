#include "src/run/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "src/run/orphan_ranks.h"

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ending = LaunchOutcome::Ending;

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
  options_.finished = [&] { return std::filesystem::exists(Path("ready")); };
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
  options_.finished = [&] { return std::filesystem::exists(Path("ready")); };
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
  InterruptFlag flag;
  options_.interrupt = &flag;
  std::thread user([&] {
    while (!std::filesystem::exists(Path("ready"))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    flag.signal = SIGINT;
    flag.count = 1;
  });
  const LaunchOutcome outcome =
      Run("setsid sleep 60 & trap 'echo got it; exit 3' INT; touch " +
          Path("ready") + "; while true; do sleep 0.05; done");
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

TEST_F(LaunchTest, LastLinesAreSafeToPrint) {
  std::ofstream(Path("text")) << "one\ntwo\n\033[31mthree\nfour";
  EXPECT_THAT(LastLines(Path("text"), 2),
              ElementsAre("\\x1b[31mthree", "four"));
  EXPECT_THAT(LastLines(Path("missing"), 2), ElementsAre());
}

}  // namespace
}  // namespace ttrace
