// The algorithm of an optimizer's step for one parameter, with the numbers it
// computes with, where all that matters is known.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_STEP_STEP_RULE_H_
#define TTRACE_SRC_STEP_STEP_RULE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "src/step/hyperparameters.h"

namespace ttrace {

enum class StepAlgorithm : uint8_t { kAdam, kSgd };

struct StepRule {
  StepAlgorithm algorithm = StepAlgorithm::kAdam;
  double lr = 0;
  double weight_decay = 0;
  bool decoupled = false;  // weight decay shrinks the parameter (AdamW)
  bool maximize = false;
  // Adam.
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  bool amsgrad = false;
  bool bias_correction = true;
  // SGD.
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  // Clipping before the step; nothing: none.
  std::optional<double> clip_norm;
  std::optional<double> clip_value;
};

// Why a step cannot be computed again.
struct StepGap {
  enum class Kind : uint8_t {
    kNothingNoted,    // no note optimizer_group for the parameter
    kAlgorithm,       // name: of the algorithm; empty: not known
    kHyperparameter,  // name: missing, or what it does is not known
    kNotRecorded,     // name: of what the step needs
    kNotHeld,         // name: recorded, but not on the rank that needs it
  };
  Kind kind = Kind::kNothingNoted;
  std::string name;

  auto operator<=>(const StepGap&) const = default;
};

struct StepRuleReading {
  std::optional<StepRule> rule;
  StepGap gap;  // where there is no rule
};

// Of what `rank` noted for one parameter and iteration
// (Hyperparameters::steps). What is not noted has the value that torch's
// optimizers have by default, where that is to do nothing; a name that nothing
// is known of leaves no rule, unless it is switched off.
StepRuleReading ReadStepRule(const std::map<std::string, ValuesOfRanks>& values,
                             int rank);

}  // namespace ttrace

#endif  // TTRACE_SRC_STEP_STEP_RULE_H_
