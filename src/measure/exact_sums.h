// Gradients of parameters as sums over tokens, made again in double from what
// was recorded around their module.
//
// Kernels may add up tokens one after the other in the precision of the values:
// torch's layer norm on a CPU does, and so do its tables in bf16. Over a
// thousand tokens such a sum loses terms that are smaller than half of its last
// bit, which no noise on values imitates. How far a gradient is off its exact
// sum is what two honest runs may differ by.
//
// Thread safety: const methods may be called from many threads.

#ifndef TTRACE_SRC_MEASURE_EXACT_SUMS_H_
#define TTRACE_SRC_MEASURE_EXACT_SUMS_H_

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/error_stats.h"
#include "src/experiment/side.h"

namespace ttrace {

class ExactSums {
 public:
  // Of layer norms and tables that `side` names in its notes.
  explicit ExactSums(const Side& side);

  // The error of `recorded`, a parameter's gradient of the side, against its
  // exact sum. Nothing if it is no such gradient, or what it was made of is not
  // whole. Fails if bytes cannot be read.
  Result<std::optional<ErrorStats>> ErrorOf(const TensorId& id,
                                            const TensorPieces& recorded) const;

 private:
  using Values = std::vector<double>;
  struct Sums {
    Values weight;
    Values bias;  // of a norm
  };
  // One call of a module.
  struct Call {
    const TensorPieces* input = nullptr;
    const TensorPieces* gradient = nullptr;  // at its output
    bool ambiguous = false;                  // several inputs or outputs
  };
  using Use = std::pair<int, std::string>;  // iteration, module

  Result<const Sums*> Find(const Use& use, const Shape& shape) const;
  Status AddNorm(const Call& call, double eps, int64_t size, Sums* sums) const;
  Status AddTable(const Call& call, int64_t padding, const Shape& shape,
                  Sums* sums) const;

  const Side& side_;
  std::map<Use, std::map<int, Call>> calls_;
  mutable std::mutex mutex_;
  mutable std::map<Use, Sums> found_;  // empty vectors: there is none
};

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_EXACT_SUMS_H_
