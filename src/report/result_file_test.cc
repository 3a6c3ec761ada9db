#include "src/report/result_file.h"

#include <gtest/gtest.h>

#include <string>

#include "src/report/json_reader.h"

namespace ttrace::result_file_test {
namespace {

std::string With(const std::string& fields) {
  return R"({"schema":2,"verdict":"within","exit_code":0,)" + fields + "}";
}

// Whoever adds them up meets no overflow.
TEST(ResultFile, NumbersThatNoResultHasAreAnError) {
  for (const char* number : {"9223372036854775807", "-9223372036854775808",
                             "18446744073709551615", "9007199254740993"}) {
    const auto read = ParseResult(
        With(std::string(R"("coverage":{"compared":)") + number + "}"));
    ASSERT_FALSE(read.ok()) << number;
    EXPECT_NE(read.error().message().find("'compared'"), std::string::npos);
  }
  const auto read =
      ParseResult(With(R"("coverage":{"compared":9007199254740992})"));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->compared, kLargestInteger);
}

TEST(ResultFile, SumsOfManyLargeCountsStayLarge) {
  ResultFile result;
  result.explained.assign(3000, {"why", kLargestInteger});
  EXPECT_EQ(result.ExplainedCount(), kLargestInteger);
  result.explained = {{"a", 2}, {"b", 3}};
  EXPECT_EQ(result.ExplainedCount(), 5);
}

}  // namespace
}  // namespace ttrace::result_file_test
