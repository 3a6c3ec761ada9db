#include "src/run/last_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ttrace::last_error_test {
namespace {

using ::testing::ElementsAre;

TEST(LastError, IsTheLastLineOfATraceback) {
  EXPECT_EQ(LastError("starting\n"
                      "Traceback (most recent call last):\n"
                      "  File \"train.py\", line 3, in <module>\n"
                      "    step()\n"
                      "    ^^^^^^\n"
                      "TypeError: step() missing 1 required argument\n"),
            "TypeError: step() missing 1 required argument");
}

TEST(LastError, OfAChainIsTheLastException) {
  EXPECT_EQ(LastError("Traceback (most recent call last):\n"
                      "  File \"a\", line 1\n"
                      "KeyError: 'x'\n"
                      "\n"
                      "During handling of the above exception, another "
                      "exception occurred:\n"
                      "\n"
                      "Traceback (most recent call last):\n"
                      "  File \"a\", line 2\n"
                      "package.errors.BadThing: no x\n"),
            "package.errors.BadThing: no x");
}

// The ranks' lines are interleaved; rank 0 fails because rank 1 did, and
// torchrun because both did.
TEST(LastError, IsTheFailureThatTheOthersFollow) {
  EXPECT_EQ(
      LastError("[rank0]: Traceback (most recent call last):\n"
                "[rank1]: Traceback (most recent call last):\n"
                "[rank0]:   File \"train.py\", line 9, in <module>\n"
                "[rank1]:   File \"train.py\", line 8, in <module>\n"
                "[rank0]: RuntimeError: [gloo] Connection closed by peer "
                "[127.0.0.1]:1\n"
                "[rank1]: ValueError: shapes differ\n"
                "E1122 10:00:00.000000 1 torch/api.py:874] failed (exitcode: "
                "1) local_rank: 0\n"
                "Traceback (most recent call last):\n"
                "  File \"torchrun\", line 8, in <module>\n"
                "torch.distributed.elastic.multiprocessing.errors."
                "ChildFailedError: \n"
                "======\n"
                "train.py FAILED\n"),
      "rank 1: ValueError: shapes differ");
}

TEST(LastError, IsShownWithItsOwnFramesOnly) {
  const std::string output =
      "[rank1]: Traceback (most recent call last):\n"
      "[rank0]: Traceback (most recent call last):\n"
      "[rank1]:   File \"train.py\", line 8\n"
      "[rank1]: ValueError: shapes differ\n"
      "[rank1]: more\n"
      "Traceback (most recent call last):\n"
      "ChildFailedError: \n";
  EXPECT_THAT(LinesOfLastError(output, 9),
              ElementsAre("[rank1]: Traceback (most recent call last):",
                          "[rank1]:   File \"train.py\", line 8",
                          "[rank1]: ValueError: shapes differ"));
  EXPECT_THAT(LinesOfLastError(output, 1),
              ElementsAre("[rank1]: ValueError: shapes differ"));
  EXPECT_THAT(LinesOfLastError("nothing wrong\n", 9), ElementsAre());
}

TEST(LastError, OfASignalThatTorchrunReports) {
  EXPECT_EQ(
      LastError("  traceback : Signal 9 (SIGKILL) received by PID 4242\n"),
      "traceback : Signal 9 (SIGKILL) received by PID 4242");
}

TEST(LastError, OfThoseThatNeverRanIsTheirOneLine) {
  EXPECT_EQ(LastError("/bin/sh: 1: no-such: not found\n"),
            "/bin/sh: 1: no-such: not found");
  EXPECT_EQ(LastError("usage: train.py [-h]\n"
                      "train.py: error: unrecognized arguments: --tp\n"),
            "train.py: error: unrecognized arguments: --tp");
  EXPECT_EQ(LastError("terminate called after throwing an instance of 'E'\n"
                      "  what():  out of memory\n"),
            "out of memory");
}

// Capture ended the processes; torchrun only knows that they are gone.
TEST(LastError, OfAProcessThatCaptureEndedIsItsReason) {
  EXPECT_EQ(LastError("ttrace: rank 0: a rerun failed on another rank\n"
                      "Traceback (most recent call last):\n"
                      "  File \"torchrun\", line 8\n"
                      "ChildFailedError: \n"),
            "ttrace: rank 0: a rerun failed on another rank");
}

TEST(LastError, OfOutputWithoutOneIsNothing) {
  EXPECT_EQ(LastError(""), "");
  EXPECT_EQ(LastError("iteration 1: loss 3.0\nvalidation Error: 0.1 %\n"), "");
  EXPECT_EQ(LastError("Traceback (most recent call last):\n  File \"a\""), "");
}

TEST(LastError, CannotActOnATerminal) {
  EXPECT_EQ(LastError("Traceback (most recent call last):\n"
                      "ValueError: \033[31mred\n"),
            "ValueError: \\x1b[31mred");
}

}  // namespace
}  // namespace ttrace::last_error_test
