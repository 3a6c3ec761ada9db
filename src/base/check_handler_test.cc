#include "src/base/check_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/base/check.h"

namespace ttrace::check_handler_test {
namespace {

using ::testing::HasSubstr;

TEST(CheckHandlerDeathTest, AProgramOfOursAborts) {
  EXPECT_DEATH(TTRACE_CHECK(1 > 2, "one is small"),
               "bug at .*check_handler_test.cc:[0-9]+: 1 > 2: one is small");
}

TEST(CheckHandlerDeathTest, InsideAnotherProgramTheCallEnds) {
  // In a process of its own: there is no way back.
  EXPECT_EXIT(
      {
        ThrowOnFailedChecks();
        try {
          TTRACE_CHECK(1 > 2, "one is small");
        } catch (const Bug& bug) {
          EXPECT_THAT(bug.what(), HasSubstr("1 > 2: one is small"));
          std::exit(::testing::Test::HasFailure() ? 1 : 0);
        }
        std::exit(1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ttrace::check_handler_test
