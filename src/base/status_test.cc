#include "ttrace/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace ttrace::status_test {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return Error(ErrorCode::kInvalidArgument, "odd");
  return value / 2;
}

Result<int> Quarter(int value) {
  TTRACE_ASSIGN_OR_RETURN(const int half, Half(value));
  TTRACE_RETURN_IF_ERROR(Half(half));
  return Half(half);
}

TEST(Result, HoldsAValueOrAnError) {
  ASSERT_TRUE(Half(4).ok());
  EXPECT_EQ(*Half(4), 2);
  ASSERT_FALSE(Half(3).ok());
  EXPECT_EQ(Half(3).error().code(), ErrorCode::kInvalidArgument);
}

TEST(Result, MacrosReturnTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_FALSE(Quarter(7).ok());
  EXPECT_FALSE(Quarter(6).ok());
}

TEST(Result, MovesOutAValueThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(3));
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 3);
}

TEST(Error, ContextIsPutInFrontAndKeepsTheCode) {
  const Error error =
      Error(ErrorCode::kCorrupt, "cut").WithContext("line 3").WithContext("a");
  EXPECT_EQ(error.message(), "a: line 3: cut");
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(ToString(error.code()), "corrupt");
}

}  // namespace
}  // namespace ttrace::status_test
