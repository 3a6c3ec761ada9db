// What one element must be after an optimizer's step, and how far honest
// arithmetic may be from it.
//
// The value is computed in double. The bound is that of the roundings that any
// reasonable order of the same formula makes in the dtypes involved: derived in
// docs/tolerance.md, "The optimizer's step". Nothing in it is measured.
//
// Each result follows from the values that were recorded just before it (the
// parameter from the moments after the step), so that no error is amplified by
// what comes after it.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_STEP_STEP_FORMULA_H_
#define TTRACE_SRC_STEP_STEP_FORMULA_H_

#include <vector>

#include "src/step/step_kernel.h"
#include "src/step/step_quantity.h"
#include "src/step/step_rule.h"
#include "ttrace/dtype.h"

namespace ttrace {

struct ExpectedValue {
  double value = 0;
  // Of |recorded - value|; infinite where any value is possible, because the
  // range of the dtype may have been left on the way.
  double bound = 0;
};

// min(1, limit / (norm + 1e-6)), as torch and Megatron compute it in the dtype
// of the norm or in float.
void SetClip(double limit, double norm, DType dtype, StepSetting* setting);

class StepFormula {
 public:
  StepFormula(const StepRule& rule, const StepSetting& setting);

  // Of elements: all but kStepCount.
  const std::vector<StepQuantity>& quantities() const { return quantities_; }
  // What a quantity is made of.
  std::vector<StepField> InputsOf(StepQuantity quantity) const;
  // Of kStepCount, which is no quantity of elements: anything.
  ExpectedValue Expect(StepQuantity quantity, const StepElement& element) const;
  // For ExpectAfterStep, which does the same for many elements.
  const StepConstants& constants() const { return constants_; }

 private:
  StepConstants constants_;
  std::vector<StepQuantity> quantities_;
};

// |recorded - value| / bound: above 1, no honest arithmetic gives `recorded`.
// Infinite where one of the two is finite and the other is not, 0 where neither
// is.
double StepHeadroom(double recorded, const ExpectedValue& expected);

}  // namespace ttrace

#endif  // TTRACE_SRC_STEP_STEP_FORMULA_H_
