#include "src/judge/reason_words.h"

#include <gtest/gtest.h>

namespace ttrace::reason_words_test {
namespace {

TEST(ReasonWords, SaysEachKind) {
  for (size_t i = 1; i < kReasonKinds; ++i) {
    const Reason reason = Because(static_cast<ReasonKind>(i), "the detail");
    EXPECT_NE(ReasonWords(reason), "") << i;
    EXPECT_EQ(ReasonWords(reason).find("{}"), std::string::npos) << i;
  }
  EXPECT_EQ(ReasonWords({}), "");
}

TEST(ReasonWords, SaysTheDetailWhereThereIsOne) {
  EXPECT_EQ(ReasonWords(Because(ReasonKind::kNotInCandidate)),
            "the candidate has no such tensor");
  EXPECT_EQ(ReasonWords(Because(ReasonKind::kNotInCandidate, "no clipping")),
            "the candidate has no such tensor: no clipping");
  EXPECT_EQ(ReasonWords(Because(ReasonKind::kStepUnknown, "its {} rate")),
            "its step is not made again: its {} rate is not known");
}

TEST(ReasonWords, AddsRowsThatAreReadOtherwise) {
  Reason reason;
  reason.foreign_rows = {2, 3};
  EXPECT_EQ(ReasonWords(reason),
            "rows 2, 3 of the global batch are not the reference's");
  reason.kind = ReasonKind::kElementsDiffer;
  reason.counts = {4, 8};
  EXPECT_EQ(ReasonWords(reason),
            "4 of 8 elements of float32 differ; rows 2, 3 of the global batch "
            "are not the reference's");
  reason.repeating = {0, 1};
  reason.kind = ReasonKind::kNone;
  EXPECT_EQ(
      ReasonWords(reason),
      "ranks 0, 1 are fed the same rows; the reference reads none of them as "
      "often");
}

}  // namespace
}  // namespace ttrace::reason_words_test
