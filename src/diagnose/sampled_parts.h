// Statistics of a culprit's parts (one rank's, of one micro-batch) by the
// samples that were kept of its values: a sketch tells nothing of parts.
//
// Thread safety: pure function of const inputs.

#ifndef TTRACE_SRC_DIAGNOSE_SAMPLED_PARTS_H_
#define TTRACE_SRC_DIAGNOSE_SAMPLED_PARTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "src/compare/compare_tensor.h"

namespace ttrace {

class ValueView;

struct SampledParts {
  std::vector<InstanceStats> parts;
  int64_t elements = 0;  // of the tensor, that were looked at
};

// Where a part has fewer than `fewest` elements among them, or zeros alone, all
// parts together stand for one. Nothing unless a side has summaries, both have
// samples, and everything in these is finite.
std::optional<SampledParts> SamplesOfParts(const ValueView& view,
                                           int64_t fewest);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_SAMPLED_PARTS_H_
