// Which parts of a tensor (by rank and micro-batch) are a constant times the
// reference's.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_SCALED_PARTS_H_
#define TTRACE_SRC_DIAGNOSE_SCALED_PARTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace ttrace {

class ValueView;

struct ScaledParts {
  double alpha = 1;   // of the scaled parts together
  bool agree = true;  // all scaled parts have it, within the bound
  double worst_residual = 0;
  int64_t right = 0;                     // parts within their bound
  std::vector<int> ranks;                // of scaled parts, sorted
  bool ranks_differ = false;             // some rank has right parts only
  std::vector<int> micro_batches;        // of scaled parts, sorted
  std::map<int, double> of_micro_batch;  // alpha of each, also of right ones
  std::map<int, double> of_rank;         // of each part's first rank
  // All parts of a rank have one factor, and they are several of each, or a
  // micro-batch is on several ranks: it is ranks that factors go by.
  bool by_rank = false;
  // Elements of the tensor that were looked at, where only samples were kept of
  // them; 0: all.
  int64_t sampled = 0;
  // Other tensors whose factor it is, where its own parts are too small to have
  // one (shared_factor.h); 0: its own.
  int64_t shared_with = 0;
};

// One factor is another's, but for what sums in fp32 lanes lose.
bool IsSameFactor(double a, double b, double bound);

// Nothing unless every part is either right or scaled, and one is scaled.
//
// A part is scaled if |alpha - 1| > bound and alpha explains it
// (judge/one_factor.h).
// A part that alpha makes zero is not scaled but missing. It is right within 4
// x bound, as one part of many may be (slices.h). Fewer than 8 elements are
// always close to a multiple and decide nothing; where all parts are so small,
// each must have the factor of the other tensors.
//
// Where a side has summaries, what was kept of its values is asked: of each
// part, or of all as one if a part has fewer than 8 elements in the sample. The
// sketches of the whole, where there are any, then have to have the error that
// one factor makes.
std::optional<ScaledParts> FindScaledParts(const ValueView& view);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_SCALED_PARTS_H_
