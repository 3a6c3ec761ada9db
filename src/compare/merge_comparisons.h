// Comparisons of parts of one tensor, made apart, as one comparison.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_COMPARE_MERGE_COMPARISONS_H_
#define TTRACE_SRC_COMPARE_MERGE_COMPARISONS_H_

#include <cstdint>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "ttrace/status.h"

namespace ttrace {

struct MergedComparison {
  TensorComparison comparison;
  // Where each of its regions stands in the parts: (part, index there). Of
  // copies that several parts hold, one.
  struct Source {
    size_t part = 0;
    size_t region = 0;
  };
  std::vector<Source> sources;
};

// Each part is the whole reference against some of the candidate's instances.
// Regions come in the order of their place in the tensor and sums are taken in
// that order, so that the order of parts does not matter. Equal regions are
// copies, the worst of which counts.
//
// Sums differ from those of one comparison by roundings: each region's were
// rounded before.
//
// Fails with kIncomparable if regions overlap without being equal, or are of
// different global shapes.
Result<MergedComparison> MergeComparisons(
    const std::vector<const TensorComparison*>& parts);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_MERGE_COMPARISONS_H_
