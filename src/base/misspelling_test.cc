#include "src/base/misspelling.h"

#include <gtest/gtest.h>

namespace ttrace::misspelling_test {
namespace {

const std::vector<std::string> kKnown = {"--iterations", "--legs", "--graft",
                                         "--graft-what"};

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(Nearest("--iteration", kKnown), "--iterations");
  EXPECT_EQ(Nearest("--itreations", kKnown), "--iterations");
  EXPECT_EQ(Nearest("--leg", kKnown), "--legs");
  EXPECT_EQ(Nearest("--grafts", kKnown), "--graft");
}

TEST(Nearest, DoesNotGuessFar) {
  EXPECT_EQ(Nearest("--nproc-per-node", kKnown), "");
  EXPECT_EQ(Nearest("", kKnown), "");
  EXPECT_EQ(Nearest(std::string(1 << 20, 'x'), kKnown), "");
}

}  // namespace
}  // namespace ttrace::misspelling_test
