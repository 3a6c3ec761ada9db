// A writer that is killed at any moment leaves a trace that can be read.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::crash_test {
namespace {

constexpr int kPerIteration = 20;

// Writes until it is killed. Tells `pipe` after every seal.
[[noreturn]] void WriteForever(const std::string& folder, int pipe) {
  const auto writer = OpenRank(folder, 0, 1);
  for (int iteration = 0;; ++iteration) {
    for (int i = 0; i < kPerIteration; ++i) {
      const std::vector<float> values(static_cast<size_t>(100 + 37 * i),
                                      static_cast<float>(iteration));
      OrDie(AppendFloats(*writer, "x" + std::to_string(i), values, iteration));
    }
    OrDie(writer->Seal(iteration, "real"));
    if (::write(pipe, &iteration, sizeof iteration) < 0) ::_exit(1);
  }
}

TEST(Crash, WhatWasSealedBeforeAKillIsThere) {
  for (int round = 0; round < 6; ++round) {
    const ScratchFolder folder;
    OrDie(CreateTraceFolder(folder.path(), "{}", false));
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(pipe[0]);
      WriteForever(folder.path(), pipe[1]);
    }
    ::close(pipe[1]);
    int sealed = -1;
    while (sealed < 2 + round) {
      ASSERT_EQ(::read(pipe[0], &sealed, sizeof sealed),
                static_cast<ssize_t>(sizeof sealed));
    }
    ::usleep(static_cast<useconds_t>(300 * round));  // Into an iteration.
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ::close(pipe[0]);

    const auto trace = OrDie(Trace::Open(folder.path()));
    const RankTrace& rank = trace->ranks()[0];
    EXPECT_FALSE(rank.closed);
    EXPECT_FALSE(rank.complete);
    EXPECT_GT(rank.sealed.size(), static_cast<size_t>(sealed));
    EXPECT_GE(trace->records().size(),
              rank.sealed.size() * static_cast<size_t>(kPerIteration));
    for (const Record& record : trace->records()) {
      OrDie(trace->Verify(record));
      const std::vector<float> values = ReadFloats(*trace, record);
      EXPECT_EQ(values.front(), static_cast<float>(record.id().iteration));
    }

    // The restarted job writes beside, and its trace is the one that counts.
    {
      const auto writer = OpenRank(folder.path(), 0, 1);
      OrDie(AppendFloats(*writer, "after", {1}));
      OrDie(writer->Close(true, ""));
    }
    const auto restarted = OrDie(Trace::Open(folder.path()));
    ASSERT_EQ(restarted->records().size(), 1u);
    EXPECT_EQ(restarted->records()[0].id().fqn, "after");
    EXPECT_TRUE(restarted->ranks()[0].complete);
  }
}

}  // namespace
}  // namespace ttrace::crash_test
