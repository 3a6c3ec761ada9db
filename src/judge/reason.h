// Why a tensor has the verdict it has, where a bound alone does not say it.
// Typed: decisions are made by the kind, words by src/judge/reason_words.h.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_JUDGE_REASON_H_
#define TTRACE_SRC_JUDGE_REASON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ttrace/dtype.h"
#include "ttrace/layout.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

enum class ReasonKind : uint8_t {
  kNone,
  // Without a partner, or not whole.
  kNotInReference,  // detail: why, if that is known
  kNotInCandidate,  // the same
  kNoCommonLeg,
  kNotComparable,    // detail: what the comparison said
  kElementsMissing,  // counts: in the candidate, the reference, both; twice
  kIterationCut,     // its iteration did not end on every rank
  // Not judged.
  kNoNoiseLegs,
  kBoundTooWide,  // numbers: the bound
  // numbers: the least and the largest error, the bound; detail: of reordered
  kUncertain,
  kReplacedByGraft,  // its own values are not those that were computed with
  kAfterStep,        // the step is not replayed
  kStepUnknown,      // detail: what of the step is not known
  kStepNotRecorded,  // detail: what the step needs
  kStepNotHeld,      // detail: the same; ranks have it not
  kReferenceStep,    // the reference's step is off in the same way
  kUnequalStart,     // its iteration starts from other weights
  kNotReplaced,      // isolated: tensor and detail say what was not and why
  kNoGradients,      // of which the norm could be recomputed
  kOfOtherModels,    // isolated: models beside this one go into it
  kNotOfTheRun,      // isolated: off by far more than the run itself may be
  kRowOfList,        // an item of a list, found by what it holds
  kBatchUnknown,     // how it depends on the batch is not known
  kReducedUnknown,   // by a function of the run's own, nobody knows how
  kUnlikeDraws,      // after random numbers that the other run drew otherwise
  kDamaged,          // detail: rank, file and tensor
  kNoRouting,        // which tokens its rows are; detail: what is missing
  kOverflow,         // counts: not finite in the candidate, in the reference
  kRoutedUpstream,   // computed after tokens that were routed otherwise
  // As it should be.
  kOwnStatistic,   // a buffer, out of bounds, that nothing compared is made of
  kBeforeStep,     // what a step starts from
  kAfterGoodStep,  // as the next iteration finds it; what the step left is good
  kOwnState,       // of an optimizer that keeps other state
  kNotMaterialised,  // detail: why
  kInsideOnePiece,   // detail: which side computes the container in one piece
  kOneMoreStep,      // seen only by a run that took one more step
  kNoSuchIteration,  // detail: which side has nothing of its iteration
  kOtherItems,       // the loops read other data; inputs were compared
  kNotSelected,      // left out by --select
  kNotObserved,      // a side does not observe the module; detail: why
  kNotAlike,         // it lies on the device mesh where nobody says
  kCleared,          // a gradient that both runs threw away
  kClearedPass,      // of a pass whose gradients both runs threw away
  // Flagged by something else than a bound.
  kShapeDiffers,    // shapes: the candidate's, the reference's
  kElementsDiffer,  // counts: that differ, of; dtype
  // ranks: that hold it; counts: 1 if it has the same elements in another order
  kOtherDigest,
  kOtherDType,   // detail: both
  kOtherPieces,  // which make the same together
  kDigestsOfTerms,
  kReferenceCopies,  // ranks: of the reference, that hold copies that differ
  kNotUpdated,       // counts: unchanged, of them changed by the reference
  kForeignPart,      // ranks hold the part of `owners`
  // numbers: reported, expected, and where it is known how often what `detail`
  // names is counted; counts: of these, and the one coordinate that counts
  kReportedNorm,
  kStepDiffers,   // counts: elements, of; numbers: worst error, its bound
  kRoutedRows,    // detail: rank, expert, rows that it holds and should
  kWrongRouting,  // counts: tokens beyond round-off, routed otherwise, of
};
inline constexpr size_t kReasonKinds =
    static_cast<size_t>(ReasonKind::kWrongRouting) + 1;

struct Reason {
  ReasonKind kind = ReasonKind::kNone;
  std::string detail;
  std::vector<int64_t> counts;
  std::vector<double> numbers;
  std::vector<int> ranks;
  std::vector<int> owners;
  Shape shape;
  Shape other_shape;
  DType dtype = DType::kF32;
  TensorId tensor;   // another one that is meant
  bool far = false;  // kNotUpdated: by several units in the last place
  // Rows of the global batch that are not the reference's.
  std::vector<int64_t> foreign_rows;
  std::vector<int> repeating;  // ranks that are fed the same rows

  bool none() const {
    return kind == ReasonKind::kNone && foreign_rows.empty() &&
           repeating.empty();
  }
};

inline Reason Because(ReasonKind kind, std::string detail = "") {
  Reason reason;
  reason.kind = kind;
  reason.detail = std::move(detail);
  return reason;
}

// What is known of why one side alone has a tensor; may be nothing.
inline std::string WhyAbsent(Role role) {
  if (role != Role::kGradNorm) return "";
  return "it does not clip its gradients, or by a function that is not known";
}

// Of a tensor that must be equal and is not. How many of its elements differ is
// known only where values were compared.
inline Reason ElementsDiffer(int64_t differ, int64_t of, DType dtype) {
  Reason reason = Because(ReasonKind::kElementsDiffer);
  reason.counts = {differ, of};
  reason.dtype = dtype;
  return reason;
}
inline Reason OtherDigest(bool reordered, std::vector<int> ranks) {
  Reason reason = Because(ReasonKind::kOtherDigest);
  reason.counts = {reordered};
  reason.ranks = std::move(ranks);
  return reason;
}

inline Reason ShapesDiffer(const Shape& candidate, const Shape& reference) {
  Reason reason = Because(ReasonKind::kShapeDiffers);
  reason.shape = candidate;
  reason.other_shape = reference;
  return reason;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_REASON_H_
