// How the values of one tensor are rounded: in which precision, in sums of how
// many terms, over how many ranks. All of it belongs to the tensor, not to the
// run, and all but the candidate's mesh is read from the reference: a candidate
// that computes in less precision does not widen its own bounds.
//
// A value inherits the rounding of what it was made from. So the forward pass
// is as rounded as its longest inner dimension makes it, the backward pass also
// as the longest outer one (a vocabulary, at the loss), and a parameter's
// gradient also as the number of tokens that it is a sum over, which nothing
// inherits from it. In an isolated leg a module inherits no sums of others, but
// a container holds what its children sum over ranks.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_EXPERIMENT_ROUNDING_H_
#define TTRACE_SRC_EXPERIMENT_ROUNDING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "src/experiment/side.h"
#include "ttrace/dtype.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

struct Rounding {
  double unit_roundoff = 0;  // of the precision its values are computed in
  // Terms of the longest sum that the value hangs on. Matters where sums are
  // made in the values' own precision.
  int64_t longest_sum = 1;
  // Ranks that a value of low precision is summed over, in each run.
  int64_t reference_ranks = 1;
  int64_t candidate_ranks = 1;
  // Terms that a rank adds to a parameter's gradient of low precision: one for
  // each use in each micro-batch.
  int64_t reference_terms = 1;
  int64_t candidate_terms = 1;
  // The spacing of each run's smallest numbers as recorded values are meant, so
  // times a gradient's declared scale (a loss scale); 0: not known. And of how
  // many values that were rounded to it a value is a sum, over ranks and
  // micro-batches, whatever precision they are added in.
  double reference_spacing = 0;
  double candidate_spacing = 0;
  int64_t reference_summands = 1;
  int64_t candidate_summands = 1;
  // Tokens that one operation of each run sums up into a gradient that is a sum
  // over tokens: those of a rank and a micro-batch. 0: not known.
  int64_t reference_tokens = 0;
  int64_t candidate_tokens = 0;
};

// By how much sums exceed one rounding of their result, which is what a noise
// leg shows: multiplies noise and floors. Derivation: docs/tolerance.md.
double SummationGrowth(const Rounding& rounding);

// What sums of low precision that are made one term after the other, by ranks
// or by a gradient that is accumulated, add to the relative difference of two
// runs if one term is nearly all of the sum and comes first: then every partial
// sum rounds what is as large as the result. 0 in fp32, and where nothing is
// summed so. Derivation: docs/tolerance.md.
double PartialSumRounding(const Rounding& rounding);

// What rounding to the spacing of the smallest numbers adds to the relative
// difference of two runs, in `count` elements whose squares sum up to
// `sum_sq`. Negligible unless values are small beside the smallest normal
// number. Derivation: docs/tolerance.md.
double SpacingRounding(const Rounding& rounding, int64_t count, double sum_sq);

// By how much noise of the reference must grow for a candidate whose smallest
// numbers are wider apart, in values whose rounding is mostly of that kind.
double CoarserSpacing(const Rounding& rounding, int64_t count, double sum_sq);

// By how much the candidate's sums over tokens may be off more than the
// reference's, at least 1, where an operation adds token after token in low
// precision. Derivation: docs/tolerance.md.
double LongerTokenSums(const Rounding& rounding);

// What such a sum may lose at most, relative to its result, where it has more
// tokens than the reference's; 0 otherwise.
double LongestTokenSumLoses(const Rounding& rounding);

class RoundingOfTensors {
 public:
  RoundingOfTensors(const Side& reference, const Side& candidate);

  // `isolated`: in a leg in which every module is given the reference's values.
  // `fp32`: in a leg that computes everything in fp32.
  Rounding Of(const TensorId& id, bool isolated, bool fp32) const;

 private:
  struct Module {
    std::optional<DType> dtype;  // lowest precision of what goes in and out
    int64_t inner = 0;           // longest last dimension of its parameters
    int64_t any = 0;             // longest dimension of its parameters
  };
  struct Sums {
    int64_t forward = 1;
    int64_t backward = 1;
    std::map<TensorId, int64_t> own;
    std::map<TensorId, int64_t> terms;  // of accumulated gradients
    std::map<TensorId, int64_t> summands;
    std::map<TensorId, double> scales;      // declared, other than 1
    std::map<std::string, int64_t> tokens;  // most that a module puts out
  };

  void ReadPrecisions(const Side& reference);
  void ReadDimensions(const Side& reference);
  Sums SumsOf(const Side& reference, const Side& side) const;
  const Module* ModuleOf(const TensorId& id) const;
  int64_t LongestSum(const TensorId& id, bool isolated) const;
  static int64_t SummedRanks(const Sums& sums, const TensorId& id);

  std::map<std::string, Module> modules_;
  // Precision of the run, where nothing closer is known.
  DType lowest_ = DType::kF32;
  int64_t sequence_ = 1;  // longest dimension of what the model is fed
  int64_t tokens_ = 1;    // of an iteration
  int64_t inner_ = 1;     // longest of all modules
  int64_t any_ = 1;
  Sums reference_sums_;
  Sums candidate_sums_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ROUNDING_H_
