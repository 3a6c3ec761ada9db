#include "src/localize/bug_class.h"

#include <gtest/gtest.h>

#include <string>

namespace ttrace::bug_class_test {
namespace {

TEST(BugClass, LettersFollowTheOrderOfTheEnumeration) {
  std::string letters;
  for (int i = 0; i < kBugClasses; ++i) {
    const auto bug_class = static_cast<BugClass>(i);
    EXPECT_NE(NameOf(bug_class), "") << i;
    letters += LetterOf(bug_class);
  }
  EXPECT_EQ(letters, "KPRSXWMGLNZDIHUC");
  EXPECT_EQ(NameOf(BugClass::kChangedBetweenSteps), "changed between steps");
}

}  // namespace
}  // namespace ttrace::bug_class_test
