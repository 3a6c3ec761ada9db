// What was recorded of one parameter's step: what went in and what came out.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_STEP_STEP_TENSORS_H_
#define TTRACE_SRC_STEP_STEP_TENSORS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "src/experiment/side.h"
#include "src/step/hyperparameters.h"

namespace ttrace {

// One number of an element. The parameter is what the step computes with: the
// master copy where there is one, and then the working copy is the model's own.
enum class StepField : uint8_t {
  kParameter,
  kGradient,
  kOldGradient,  // of the iteration before
  kFirst,        // exp_avg
  kSecond,       // exp_avg_sq
  kLargest,      // max_exp_avg_sq
  kMomentum,     // momentum_buffer
  kCopy,         // working copy
  kParameterAfter,
  kFirstAfter,
  kSecondAfter,
  kLargestAfter,
  kMomentumAfter,
  kCopyAfter,
};
inline constexpr size_t kStepFields = 14;

struct StepTensor {
  TensorId id;
  const TensorPieces* pieces = nullptr;  // null: not recorded
  // Of any rank, because the ranks' own was replaced by it.
  bool of_reference = false;
};

struct StepTensors {
  StepOfParameter step;
  std::array<StepTensor, kStepFields> fields;
  // Counts of steps, of one element; null: not recorded.
  StepTensor count;
  StepTensor count_after;
  const TensorPieces* norm = nullptr;  // that clips
  bool has_master = false;
  int several_norms = 0;  // more than one: it is not known which clips

  const StepTensor& At(StepField field) const {
    return fields[static_cast<size_t>(field)];
  }
  bool Has(StepField field) const { return At(field).pieces != nullptr; }
};

// The name of a field as a trace and a person know it: "exp_avg",
// "grad_reduced".
std::string NameOf(StepField field);

struct ParsedNote;

class StepCatalog {
 public:
  // `grafted_from`: whose weights were put in place of those of `side` before
  // each iteration; null: nobody's. Keeps references to both.
  StepCatalog(const Side& side, const Side* grafted_from);

  // Steps of parameters of which something is recorded after the step.
  const std::set<StepOfParameter>& steps() const { return steps_; }
  StepTensors Find(const StepOfParameter& step) const;

  const Side& side() const { return side_; }
  const Hyperparameters& hyperparameters() const { return hyperparameters_; }
  // A note of `rank` says that no step was made.
  bool Skipped(int rank, int iteration) const {
    return skipped_.contains({rank, iteration});
  }
  // A note of `rank` says that the parameter had no gradient when its step
  // began: an optimizer of torch then leaves all of it alone, weight decay and
  // momentum included, as of a gradient of zeros it would not.
  bool HasNoGradient(int rank, const StepOfParameter& step) const {
    return without_gradient_.contains({rank, step});
  }

 private:
  StepTensor State(const StepOfParameter& step, const std::string& arg,
                   Pass pass) const;
  StepTensor StateBefore(const StepOfParameter& step,
                         const std::string& arg) const;
  void Read(const ParsedNote& note);
  // The model's own parameter.
  StepTensor OwnBefore(const StepOfParameter& step) const;
  StepTensor OwnAfter(const StepOfParameter& step) const;

  const Side& side_;
  const Side* grafted_from_;
  Hyperparameters hyperparameters_;
  std::set<StepOfParameter> steps_;
  std::set<std::pair<int, int>> skipped_;
  std::set<std::pair<int, StepOfParameter>> without_gradient_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_STEP_STEP_TENSORS_H_
