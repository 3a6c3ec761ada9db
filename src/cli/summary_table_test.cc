#include "src/cli/summary_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ttrace::summary_table_test {
namespace {

using testing::HasSubstr;

SummaryRow Row(const std::string& name, int exit_code) {
  SummaryRow row;
  row.name = name;
  row.verdict = "within";
  row.exit_code = exit_code;
  row.seconds = 61;
  return row;
}

TEST(SummaryTable, HasALineForEachAndItsReasonBelow) {
  SummaryRow wrong = Row("tp/two", 1);
  wrong.verdict = "diverged";
  wrong.first_place = "decoder.final_layernorm.weight grad_reduced";
  wrong.bug_class = "P missing partial sum";
  SummaryRow open = Row("pp/candidate", 2);
  open.verdict = "inconclusive";
  open.reason = "nothing was compared";
  EXPECT_EQ(
      SummaryTable({wrong, open}, 120),
      "EXPERIMENT    VERDICT       FIRST PLACE                            "
      "      CLASS                  TIME\n"
      "tp/two        diverged      decoder.final_layernorm.weight "
      "grad_reduced  P missing partial sum  1 min 01 s\n"
      "pp/candidate  inconclusive                                         "
      "                             1 min 01 s\n"
      "pp/candidate: nothing was compared\n");
  EXPECT_THAT(SummaryTable({wrong}, 90), HasSubstr("  decoder.f"));
  EXPECT_THAT(SummaryTable({wrong}, 90), HasSubstr("..."));
}

TEST(WorstExitCode, IsThatOfADivergenceThenOfWhatIsOpen) {
  EXPECT_EQ(WorstExitCode({Row("a", 0), Row("b", 0)}), 0);
  EXPECT_EQ(WorstExitCode({Row("a", 0), Row("b", 2)}), 2);
  EXPECT_EQ(WorstExitCode({Row("a", 2), Row("b", 1), Row("c", 0)}), 1);
  EXPECT_EQ(WorstExitCode({}), 2);
}

class SummaryOfTest : public testing::Test {
 protected:
  SummaryOfTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("summary." + std::to_string(getpid()) + "." + info->name());
    std::filesystem::create_directories(folder_);
  }
  ~SummaryOfTest() override { std::filesystem::remove_all(folder_); }

  SummaryRow Of(const std::string& result, int exit_code) {
    std::ofstream(folder_ / "result.json") << result;
    return SummaryOf("a/b", folder_.string(), exit_code, 1);
  }

  std::filesystem::path folder_;
};

TEST_F(SummaryOfTest, WithoutAResultNothingHasPassed) {
  const SummaryRow row = SummaryOf("a/b", folder_.string(), 0, 1);
  EXPECT_EQ(row.verdict, "no result");
  EXPECT_EQ(row.exit_code, 2);
  EXPECT_EQ(Of("{", 0).exit_code, 2);
}

TEST_F(SummaryOfTest, ACommandThatFailedIsNoPass) {
  const std::string within =
      R"({"schema":1,"verdict":"within","exit_code":0,"reason":""})";
  EXPECT_EQ(Of(within, 0).exit_code, 0);
  const SummaryRow row = Of(within, 2);
  EXPECT_EQ(row.exit_code, 2);
  EXPECT_EQ(row.verdict, "within, but");
  EXPECT_EQ(row.reason, "its command failed");
  // A process that died of something.
  EXPECT_EQ(Of(within, 139).exit_code, 2);
}

TEST_F(SummaryOfTest, NamesOfAResultArePrintable) {
  const SummaryRow row =
      Of(R"({"schema":1,"verdict":"diverged","exit_code":1,"reason":"",)"
         R"("culprits":[{"fqn":"a\u001b[2J","role":"out\nput","classes":[]}]})",
         1);
  EXPECT_EQ(row.first_place, R"(a\x1b[2J out\nput)");
}

}  // namespace
}  // namespace ttrace::summary_table_test
