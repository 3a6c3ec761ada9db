#include "src/experiment/rounds.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>

namespace ttrace::rounds_test {
namespace {

// What ranks of a pipeline record, one module after the other.
class Recorded {
 public:
  ttrace::Record Add(int rank, const std::string& fqn, int micro_batch,
                     Role role = Role::kOutput, Pass pass = Pass::kForward,
                     int iteration = 0) {
    RecordFields fields;
    fields.rank = rank;
    fields.sequence = static_cast<int64_t>(records_.size()) + 1;
    fields.id = {fqn, role, iteration, 0, "0", pass};
    fields.micro_batch = micro_batch;
    const ttrace::Record record = records_.Append(fields);
    tensors_[record.id()].pieces.push_back(record);
    return record;
  }
  Rounds rounds() const { return Rounds(tensors_); }

 private:
  RecordTable records_;
  std::map<TensorId, TensorPieces> tensors_;
};

TEST(Rounds, BeginWhereARankComesBackToItsFirstMicroBatch) {
  Recorded run;
  // Data-parallel rank 1 of 2: its micro-batches are 1 and 3, then 5 and 7.
  const Record& first = run.Add(1, "layers.0", 1);
  run.Add(1, "layers.0.norm", 1);
  run.Add(1, "layers.0", 3);
  const Record& second = run.Add(1, "layers.2", 1);
  const Record& other = run.Add(1, "layers.2", 3);
  const Record& later = run.Add(1, "layers.0", 5);
  const Record& elsewhere = run.Add(0, "layers.1", 0);
  const Record& next =
      run.Add(1, "layers.0", 1, Role::kOutput, Pass::kForward, /*iteration=*/1);
  const Rounds rounds = run.rounds();
  EXPECT_EQ(rounds.Of(first), 0);
  EXPECT_EQ(rounds.Of(second), 1);
  EXPECT_EQ(rounds.Of(other), 1);
  EXPECT_EQ(rounds.Of(later), 1) << "of no use: an earlier record counts";
  EXPECT_EQ(rounds.Of(elsewhere), 0);
  EXPECT_EQ(rounds.Of(next), 0) << "another iteration";
}

TEST(Rounds, AreOfBackwardByItself) {
  Recorded run;
  run.Add(0, "layers.0", 0);
  run.Add(0, "layers.0", 1);
  const Record& last = run.Add(0, "layers.2", 0, Role::kGradInput);
  // A forward between two backward passes is none of theirs, a recomputed one
  // is.
  const Record& between = run.Add(0, "layers.0", 2);
  const Record& recomputed =
      run.Add(0, "layers.2", 0, Role::kOutput, Pass::kRecompute);
  run.Add(0, "layers.2", 1, Role::kGradInput);
  const Record& back = run.Add(0, "layers.0", 0, Role::kGradInput);
  const Record& gradient = run.Add(0, "layers.0.w", -1, Role::kGradLocal);
  const Rounds rounds = run.rounds();
  EXPECT_EQ(rounds.Of(last), 0);
  EXPECT_EQ(rounds.Of(between), 0);
  EXPECT_EQ(rounds.Of(recomputed), 0);
  EXPECT_EQ(rounds.Of(back), 1);
  EXPECT_EQ(rounds.Of(gradient), 0);
}

}  // namespace
}  // namespace ttrace::rounds_test
