#include "src/trace/segments/verify_ahead.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::verify_ahead_test {
namespace {

constexpr size_t kDamaged = 3;

// Of rank 0 eight records of 8 bytes, of which one is damaged, one larger than
// is verified ahead, and one more; of rank 1 another one.
class VerifyAheadTest : public testing::Test {
 protected:
  VerifyAheadTest() {
    OrDie(CreateTraceFolder(folder_.path(), "{}", true));
    for (int rank = 0; rank < 2; ++rank) {
      const auto writer = OpenRank(folder_.path(), rank, 2);
      for (int i = 0; i < (rank == 0 ? 8 : 1); ++i) {
        OrDie(AppendFloats(*writer, "small." + std::to_string(i),
                           {static_cast<float>(i), 1}));
      }
      if (rank == 0) {
        OrDie(AppendFloats(*writer, "large", std::vector<float>(2000, 1)));
        OrDie(AppendFloats(*writer, "last", {5}));
      }
      OrDie(writer->Seal(0, "real"));
      OrDie(writer->Close(true, ""));
    }
    trace_ = OrDie(Trace::Open(folder_.path()));
    SetFileByte(path(),
                static_cast<size_t>(record(kDamaged).extent().offset) + 1, 'x');
  }

  std::string path() const {
    return folder_ / "rank-00000.r0/segment-00000.safetensors";
  }
  Record record(size_t place) const { return trace_->records()[place]; }

  ScratchFolder folder_;
  std::shared_ptr<const Trace> trace_;
};

TEST_F(VerifyAheadTest, FindsThoseThatAreGoodUpToALargeOne) {
  VerifiedRecords verified(trace_->records().size());
  VerifyAhead(OrDie(File::Open(path())), trace_->records(), 1, &verified);
  for (size_t i = 0; i < trace_->records().size(); ++i) {
    const bool reached = i >= 1 && i < 8;
    EXPECT_EQ(verified.IsNew(i), !reached) << i;
    EXPECT_EQ(verified.IsGood(i), reached && i != kDamaged) << i;
  }
  EXPECT_TRUE(verified.bad().empty());
}

TEST_F(VerifyAheadTest, LooksAtNothingThatStandsAlone) {
  VerifiedRecords verified(trace_->records().size());
  for (const size_t alone : {size_t{7}, size_t{8}, size_t{9}}) {
    VerifyAhead(OrDie(File::Open(path())), trace_->records(), alone, &verified);
    EXPECT_TRUE(verified.IsNew(alone)) << alone;
  }
}

TEST_F(VerifyAheadTest, DamageIsKnownWhenItsRecordIsWanted) {
  EXPECT_EQ(ReadFloats(*trace_, record(0)), (std::vector<float>{0, 1}));
  EXPECT_EQ(ReadFloats(*trace_, record(5)), (std::vector<float>{5, 1}));
  EXPECT_TRUE(trace_->damaged().empty());
  for (int again = 0; again < 2; ++again) {
    const Status status = trace_->Verify(record(kDamaged));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kCorrupt);
    EXPECT_NE(status.error().message().find("small.3"), std::string::npos);
    ASSERT_EQ(trace_->damaged().size(), 1U);
    EXPECT_EQ(trace_->damaged()[0].record, record(kDamaged));
  }
  EXPECT_TRUE(trace_->Verify(record(4)).ok());
}

TEST_F(VerifyAheadTest, AFileThatBecameShorterLosesOnlyWhatWasCut) {
  const auto cut = static_cast<off_t>(record(5).extent().offset) + 2;
  ASSERT_EQ(truncate(path().c_str(), cut), 0);
  EXPECT_TRUE(trace_->Verify(record(4)).ok());
  EXPECT_FALSE(trace_->Verify(record(5)).ok());
  EXPECT_TRUE(trace_->Verify(record(0)).ok());
}

}  // namespace
}  // namespace ttrace::verify_ahead_test
