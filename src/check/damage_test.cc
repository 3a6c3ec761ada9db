// Damaged bytes are named, and nothing is concluded from them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "src/check/check.h"
#include "src/check/synthetic_run_test.h"
#include "src/trace/format.h"
#include "src/trace/reader.h"
#include "src/trace/scratch_trace.h"

namespace ttrace {
namespace {

using testing::HasSubstr;

class DamageTest : public testing::Test {
 protected:
  void SetUp() override {
    SyntheticRun reference;
    reference.legs = {"real", "noise.1", "noise.2", "noise.3"};
    reference.Write(folder_ / "ref");
    SyntheticRun candidate;
    candidate.mesh = {{"dp", 2}, {"tp", 2}};
    candidate.noise = 0x1p-24f;
    candidate.Write(folder_ / "cand");
  }

  Result<CheckResult> Check() const {
    CheckOptions options;
    options.reference = folder_ / "ref";
    options.candidate = folder_ / "cand";
    return RunCheck(options);
  }

  static std::string Segment(const std::string& trace, const Record& record) {
    return trace + "/" + RankFolderName({record.rank, 0}) + "/" +
           SegmentFileName(record.extent.segment);
  }

  // What a check says that comes to no verdict.
  static std::string Said(const Result<CheckResult>& result) {
    if (!result.ok()) {
      EXPECT_EQ(result.error().code(), ErrorCode::kCorrupt);
      return result.error().message();
    }
    EXPECT_EQ(result->verdict, Verdict::kInconclusive) << result->reason;
    EXPECT_TRUE(result->culprits.empty());
    return result->reason;
  }

  // Expects that the check names the record, and no verdict.
  void ExpectNamed(const Record& record) const {
    const auto result = Check();
    const std::string message = Said(result);
    EXPECT_THAT(message, HasSubstr("rank " + std::to_string(record.rank)));
    EXPECT_THAT(message, HasSubstr(SegmentFileName(record.extent.segment)));
    EXPECT_THAT(message, HasSubstr(ToString(record.id)));
  }

  ScratchFolder folder_;
};

TEST_F(DamageTest, AnyTensorOfAnyLegThatIsZeroedIsNamed) {
  ASSERT_TRUE(Check().ok());
  for (const char* side : {"ref", "cand"}) {
    const std::string trace = folder_ / side;
    const auto records = OrDie(Trace::Open(trace))->records();
    for (const Record& record : records) {
      std::fstream file(Segment(trace, record),
                        std::ios::in | std::ios::out | std::ios::binary);
      std::string before(static_cast<size_t>(record.extent.bytes), '\0');
      const std::string zeros = before;
      const auto size = static_cast<std::streamsize>(before.size());
      file.seekg(record.extent.offset).read(before.data(), size);
      file.seekp(record.extent.offset).write(zeros.data(), size).flush();
      ExpectNamed(record);
      file.seekp(record.extent.offset).write(before.data(), size).flush();
    }
  }
  EXPECT_TRUE(Check().ok());
}

TEST_F(DamageTest, SegmentsOfTwoRanksSwappedAreNoDivergence) {
  const std::string a =
      folder_ / "cand/rank-00000.r0/segment-00000.safetensors";
  const std::string b =
      folder_ / "cand/rank-00001.r0/segment-00000.safetensors";
  std::filesystem::rename(a, folder_ / "spare");
  std::filesystem::rename(b, a);
  std::filesystem::rename(folder_ / "spare", b);
  const auto result = Check();
  EXPECT_THAT(Said(result), HasSubstr("segment-00000"));
}

}  // namespace
}  // namespace ttrace
