#include "src/numeric/instruction_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace ttrace::instruction_set_test {
namespace {

using testing::HasSubstr;

class InstructionSetTest : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv(kInstructionSetVariable);
    EXPECT_TRUE(LimitInstructionSet("").ok());
  }
};

TEST_F(InstructionSetTest, IsTheBestUnlessLimited) {
  const auto all = InstructionSets();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(InstructionSet(), all.front());
  for (const std::string& name : all) {
    ASSERT_TRUE(LimitInstructionSet(name).ok()) << name;
    EXPECT_EQ(InstructionSet(), name);
  }
  ASSERT_TRUE(LimitInstructionSet("").ok());
  EXPECT_EQ(InstructionSets(), all);
}

TEST_F(InstructionSetTest, OneThatIsNotThereIsRefusedWithThoseThatAre) {
  setenv(kInstructionSetVariable, "MMX", 1);
  const Status limited = LimitInstructionSetByEnvironment();
  ASSERT_FALSE(limited.ok());
  EXPECT_EQ(limited.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(limited.error().message(), HasSubstr("'MMX'"));
  EXPECT_THAT(limited.error().message(), HasSubstr(kInstructionSetVariable));
  EXPECT_THAT(limited.error().message(), HasSubstr(InstructionSet()));
}

TEST_F(InstructionSetTest, IsReadFromTheEnvironment) {
  EXPECT_TRUE(LimitInstructionSetByEnvironment().ok());
  const std::string last = InstructionSets().back();
  setenv(kInstructionSetVariable, last.c_str(), 1);
  ASSERT_TRUE(LimitInstructionSetByEnvironment().ok());
  EXPECT_EQ(InstructionSet(), last);
}

}  // namespace
}  // namespace ttrace::instruction_set_test
