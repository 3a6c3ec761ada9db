// What is said of one tensor: its verdict, and what goes with it.
//
// An outcome is made by the functions below and given to a judgement whole, so
// that a verdict, its reason and its headroom are of one another.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_JUDGE_OUTCOME_H_
#define TTRACE_SRC_JUDGE_OUTCOME_H_

#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "src/judge/constants.h"
#include "src/judge/reason.h"

namespace ttrace {

enum class TensorVerdict : uint8_t {
  kBitwiseEqual,
  kWithin,
  kSuspect,
  kDiverged,
  kNotCheckable,  // the bound is too wide to mean anything, or none exists
  kUnmatched,     // one side does not have it
};
std::string_view ToString(TensorVerdict verdict);

struct Outcome {
  TensorVerdict verdict = TensorVerdict::kUnmatched;
  Reason reason;         // why not checkable, unmatched, explained or flagged
  bool excused = false;  // not compared, and `reason` says why that is right
  // Index into the tensor's legs of the end-to-end leg with the largest
  // headroom; -1: none decides.
  int deciding_leg = -1;
  double headroom = 0;     // of the deciding leg
  std::vector<int> ranks;  // that hold a faulty instance; empty: all
  bool nonfinite = false;  // NaN or Inf where the reference has none

  bool diverged() const { return verdict == TensorVerdict::kDiverged; }
};

// Of a tensor that was held against a bound.
inline TensorVerdict ByHeadroom(double headroom, bool bitwise_equal) {
  if (headroom > 1) return TensorVerdict::kDiverged;
  if (bitwise_equal) return TensorVerdict::kBitwiseEqual;
  return headroom > kSuspectHeadroom ? TensorVerdict::kSuspect
                                     : TensorVerdict::kWithin;
}

// Nothing else is said of it than what its reason says.
inline Outcome Settled(TensorVerdict verdict, Reason reason) {
  Outcome out;
  out.verdict = verdict;
  out.reason = std::move(reason);
  return out;
}

inline Outcome NotCheckable(Reason reason) {
  return Settled(TensorVerdict::kNotCheckable, std::move(reason));
}

// It is not comparable, and that is right.
inline Outcome Excused(Reason reason) {
  Outcome out = NotCheckable(std::move(reason));
  out.excused = true;
  return out;
}

inline Outcome Excused(ReasonKind kind) { return Excused(Because(kind)); }

// By something else than a bound.
inline Outcome Flagged(std::vector<int> ranks, Reason reason) {
  Outcome out = Settled(TensorVerdict::kDiverged, std::move(reason));
  out.headroom = std::numeric_limits<double>::infinity();
  out.ranks = std::move(ranks);
  return out;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_OUTCOME_H_
