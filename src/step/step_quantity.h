// What an optimizer's step computes of each element.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_STEP_STEP_QUANTITY_H_
#define TTRACE_SRC_STEP_STEP_QUANTITY_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/step/step_tensors.h"

namespace ttrace {

// The values of one element, by StepField.
using StepElement = std::array<double, kStepFields>;

// Results of a step.
enum class StepQuantity : uint8_t {
  kStepCount,
  kFirst,
  kSecond,
  kLargest,
  kMomentum,
  kParameter,
  kCopy,  // of the parameter after the step, rounded
};
inline constexpr size_t kStepQuantities = 7;

// What a step that is not made leaves as it was. REQUIRES: not kStepCount.
StepField BeforeOf(StepQuantity quantity);
// Where a quantity is recorded. REQUIRES: not kStepCount.
StepField ResultOf(StepQuantity quantity);

}  // namespace ttrace

#endif  // TTRACE_SRC_STEP_STEP_QUANTITY_H_
