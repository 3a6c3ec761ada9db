// Damaged bytes are named, and nothing is concluded from them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "src/check/check.h"
#include "src/check/testing/synthetic_run.h"
#include "src/trace/format.h"
#include "src/trace/reader.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::damage_test {
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

  Result<CheckResult> CheckWithoutReference() const {
    CheckOptions options;
    options.candidate = folder_ / "cand";
    return RunCheck(options);
  }

  static std::string Segment(const std::string& trace, const Record& record) {
    return trace + "/" + RankFolderName({record.rank(), 0}) + "/" +
           SegmentFileName(record.extent().segment);
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

  // Expects that the check names the record, and no verdict on anything that
  // was measured of its tensor.
  static void ExpectNamed(const Record& record,
                          const Result<CheckResult>& result) {
    const std::string message = Said(result);
    EXPECT_THAT(message, HasSubstr("rank " + std::to_string(record.rank())));
    EXPECT_THAT(message, HasSubstr(SegmentFileName(record.extent().segment)));
    EXPECT_THAT(message, HasSubstr(ToString(record.id())));
    if (!result.ok()) return;
    for (const TensorJudgement& t : result->tensors) {
      if (t.id != record.id()) continue;
      EXPECT_EQ(t.verdict, TensorVerdict::kNotCheckable) << message;
      EXPECT_EQ(t.reason.kind, ReasonKind::kDamaged) << message;
    }
  }

  // Calls `check` while the record is all zeros.
  static void Zeroed(const std::string& trace, const Record& record,
                     const std::function<void()>& check) {
    std::fstream file(Segment(trace, record),
                      std::ios::in | std::ios::out | std::ios::binary);
    std::string before(static_cast<size_t>(record.extent().bytes), '\0');
    const std::string zeros = before;
    const auto size = static_cast<std::streamsize>(before.size());
    file.seekg(record.extent().offset).read(before.data(), size);
    file.seekp(record.extent().offset).write(zeros.data(), size).flush();
    check();
    file.seekp(record.extent().offset).write(before.data(), size).flush();
  }

  ScratchFolder folder_;
};

TEST_F(DamageTest, AnyTensorOfAnyLegThatIsZeroedIsNamed) {
  ASSERT_TRUE(Check().ok());
  for (const char* side : {"ref", "cand"}) {
    const std::string trace = folder_ / side;
    const auto opened = OrDie(Trace::Open(trace));
    const RecordTable& records = opened->records();
    for (const Record& record : records) {
      Zeroed(trace, record, [&] { ExpectNamed(record, Check()); });
    }
  }
  EXPECT_TRUE(Check().ok());
}

TEST_F(DamageTest, WithoutAReferenceWhatIsLookedAtIsNamedToo) {
  const std::string trace = folder_ / "cand";
  const auto opened = OrDie(Trace::Open(trace));
  const RecordTable& records = opened->records();
  for (const Record& record : records) {
    // Nothing is asked of an activation that no other rank holds.
    if (record.id().fqn == "fc" && record.id().role == Role::kOutput) continue;
    Zeroed(trace, record,
           [&] { ExpectNamed(record, CheckWithoutReference()); });
  }
}

// What the candidate lacks is compared with nothing.
TEST_F(DamageTest, WhatOnlyTheReferenceHoldsIsNamedToo) {
  for (const char* side : {"ref", "cand"}) {
    std::filesystem::remove_all(folder_ / side);
    SyntheticRun run;
    run.mesh = {{"tp", 2}};
    if (side == std::string("ref")) {
      run.legs = {"real", "noise.1"};
    } else {
      run.omit = [](const SyntheticTensor& t, int rank, const Leg&, int) {
        return t.role == Role::kGradReduced && rank == 1;
      };
    }
    run.Write(folder_ / side);
  }
  const std::string trace = folder_ / "ref";
  const auto opened = OrDie(Trace::Open(trace));
  const RecordTable& records = opened->records();
  const auto record =
      std::find_if(records.begin(), records.end(), [](const Record& r) {
        return r.id().role == Role::kGradReduced && r.rank() == 1 &&
               r.leg() == "real";
      });
  ASSERT_NE(record, records.end());
  Zeroed(trace, *record, [&] { ExpectNamed(*record, Check()); });
}

// Whoever met the bytes may have gone on without them: not even copies tell.
TEST_F(DamageTest, NobodyIsAccusedBesideIt) {
  const std::string trace = folder_ / "cand";
  std::filesystem::remove_all(trace);
  SyntheticRun candidate;
  candidate.mesh = {{"dp", 2}, {"tp", 2}};
  candidate.fault = [](const SyntheticTensor& t, int rank, const Leg&, int64_t,
                       float* value) {
    if (t.fqn == "fc" && t.role == Role::kInput && rank == 1) *value += 1;
  };
  candidate.Write(trace);
  EXPECT_EQ(OrDie(Check()).verdict, Verdict::kDiverged);
  const auto opened = OrDie(Trace::Open(trace));
  const RecordTable& records = opened->records();
  const auto record = std::find_if(
      records.begin(), records.end(),
      [](const Record& r) { return r.id().role == Role::kGradReduced; });
  ASSERT_NE(record, records.end());
  Zeroed(trace, *record, [&] { ExpectNamed(*record, Check()); });
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
}  // namespace ttrace::damage_test
