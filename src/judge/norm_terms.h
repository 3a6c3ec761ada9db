// Which parameters' contributions, counted otherwise, make the gradient norm
// that was reported.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_JUDGE_NORM_TERMS_H_
#define TTRACE_SRC_JUDGE_NORM_TERMS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "src/measure/reported_norm.h"

namespace ttrace {

struct NormExplanation {
  std::string whose;    // "fc.bias", "parameters that are cut along tp"
  int64_t count = 1;    // parameters
  double weight = 0;    // how often their squares are counted; 0: not
  int coordinate = -1;  // counted from this coordinate along `whose` alone
};

// Tried are each parameter, those of one name in all layers, and those that are
// or are not cut along a dimension of the mesh: left out, counted twice, as
// often as a dimension has ranks or that fraction of once, or one rank's part
// alone. `bound`: relative, of the norm. Nothing if none of these gives the
// reported norm, or several do.
std::optional<NormExplanation> ExplainNorm(const ReportedNorm& norm,
                                           double bound);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_NORM_TERMS_H_
