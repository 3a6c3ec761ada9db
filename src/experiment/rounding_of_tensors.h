// The rounding of each tensor of two runs. All of it belongs to the tensor, not
// to the run, and all but the candidate's mesh, scales and micro-batches is
// read from the reference: a candidate that computes in less precision does not
// widen its own bounds.
//
// A value inherits the rounding of what it was made from. So the forward pass
// is as rounded as its longest inner dimension makes it, the backward pass also
// as the longest outer one (a vocabulary, at the loss), and a parameter's
// gradient also as the number of tokens that it is a sum over, which nothing
// inherits from it. In an isolated leg a module inherits no sums of others, but
// a container holds what its children sum over ranks.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_EXPERIMENT_ROUNDING_OF_TENSORS_H_
#define TTRACE_SRC_EXPERIMENT_ROUNDING_OF_TENSORS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "src/experiment/rounding.h"
#include "src/experiment/side.h"
#include "ttrace/dtype.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

class RoundingOfTensors {
 public:
  RoundingOfTensors(const Side& reference, const Side& candidate);

  // `isolated`: in a leg in which every module is given the reference's values.
  // `fp32`: in a leg that computes everything in fp32.
  Rounding Of(const TensorId& id, bool isolated, bool fp32) const;
  // Whether a function of the user's own made it of the ranks' terms, in a
  // precision that is not known.
  bool IsReducedUnknown(const TensorId& id) const;

 private:
  struct Module {
    std::optional<DType> dtype;  // lowest precision of what goes in and out
    int64_t inner = 0;           // longest last dimension of its parameters
    int64_t any = 0;             // longest dimension of its parameters
    int64_t matrices = 0;        // of its own, not its children's
    // That it makes one after the other: with matrices of its own and of
    // children that it does not call, and of activations.
    int64_t products = 0;
    int64_t vector = 0;  // the longest of its own, without matrices
    int64_t given = 0;   // elements of its largest input
    bool is_norm_of_features = false;

    // Terms of a sum over all that is there of one of its features, as a norm
    // over rows makes it, and a module without a matrix may be one; 0: none.
    int64_t SumOfFeature() const {
      return matrices == 0 && vector > 0 && !is_norm_of_features
                 ? given / vector
                 : 0;
    }
  };
  struct Sums {
    int64_t forward = 1;
    int64_t backward = 1;
    std::map<TensorId, int64_t> own;
    std::map<TensorId, int64_t> terms;  // of accumulated gradients
    std::map<TensorId, int64_t> summands;
    std::map<TensorId, double> scales;      // declared, other than 1
    std::map<std::string, int64_t> tokens;  // most that a module puts out
    std::map<TensorId, GradientParts> parts;
  };

  void ReadPrecisions(const Side& reference);
  void ReadDimensions(const Side& reference);
  Sums SumsOf(const Side& reference, const Side& side) const;
  const Module* ModuleOf(const TensorId& id) const;
  // Of the code that makes an edge: the lowest of the nearest module around its
  // own of which a precision is known and, where that has such an edge of the
  // same shape, which may be the very tensor, of those around it. Nothing if
  // there is none.
  std::optional<DType> PrecisionOfMaker(const TensorId& id) const;
  int64_t LongestSum(const TensorId& id, bool isolated) const;
  static int64_t SummedRanks(const Sums& sums, const TensorId& id);

  // Of a parameter, the module that multiplies with it: its own, or the one
  // around it whose forward was seen, as of a compiled region.
  const Module* UserOf(const TensorId& id) const;

  std::map<std::string, Module> modules_;
  std::map<std::string, std::string> users_;  // of parameters
  std::map<std::string, DType> buffers_;      // those of floating point
  // How many parts of an iteration's rows each run makes statistics of.
  int64_t reference_parts_ = 1;
  int64_t candidate_parts_ = 1;
  // Of a module's inputs and of the gradients arriving at it.
  std::map<std::pair<std::string, Role>, std::set<Shape>> edges_;
  // Precision of the run, where nothing closer is known.
  DType lowest_ = DType::kF32;
  int64_t sequence_ = 1;  // longest dimension of what the model is fed
  int64_t tokens_ = 1;    // of an iteration
  int64_t inner_ = 1;     // longest of all modules
  int64_t any_ = 1;
  int64_t products_ = 1;  // most that one module makes
  int64_t models_beside_ = 0;
  int64_t sum_of_feature_ = 1;  // longest of all modules
  Sums reference_sums_;
  Sums candidate_sums_;
  std::optional<ReductionHook> reference_hook_;
  std::optional<ReductionHook> candidate_hook_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ROUNDING_OF_TENSORS_H_
