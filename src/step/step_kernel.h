// The arithmetic of StepFormula, many elements at a time: what each must be
// after the step, and how far from it honest arithmetic may be. The bounds are
// derived in docs/tolerance.md, "The optimizer's step".
//
// All of it is exactly rounded operations in one order, without fused
// multiply-adds, so that every instruction set gives the same bits.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_STEP_STEP_KERNEL_H_
#define TTRACE_SRC_STEP_STEP_KERNEL_H_

#include <array>
#include <cstddef>

#include "src/step/step_quantity.h"
#include "src/step/step_rule.h"
#include "ttrace/dtype.h"

namespace ttrace {

// What holds for all elements of a step on one rank.
struct StepSetting {
  double count = 1;         // of steps, this one included
  bool first_step = false;  // SGD: there was no momentum buffer before
  double gradient_scale = 1;
  double clip = 1;                // coefficient
  double clip_error = 0;          // of it, absolute
  DType parameter = DType::kF32;  // that the step computes with
  DType gradient = DType::kF32;
  DType first = DType::kF32;  // also of the momentum buffer
  DType second = DType::kF32;
  DType largest = DType::kF32;
  DType copy = DType::kF32;
  // For hypotheses only: no optimizer does so by its settings.
  bool eps_inside_root = false;
};

// What is the same for all elements: the rule, the setting, and what follows
// from them.
struct StepConstants {
  struct Format {
    // Unit round-off; where it is that of arithmetic, the run's and the
    // replay's together.
    double unit = 0;
    double tiny = 0;     // what underflow may lose
    double largest = 0;  // finite
    double growth = 1;   // of errors, by terms of second order and above
  };

  StepRule rule;
  StepSetting setting;

  Format own;       // of the arithmetic, both
  Format gradient;  // both; coarser of the gradient's and the arithmetic's
  bool gradient_is_shortened = false;  // to the dtype of the arithmetic
  Format first;                        // as stored; also of the momentum buffer
  Format second;
  Format largest;
  double square_largest = 0;  // squares from here on may overflow
  double scalar = 0;  // of hyperparameters and of a kernel's registers, both
  double correction1 = 1;  // of bias
  double correction2 = 1;
  double correction_error = 0;  // relative, of the size of a whole step
  double root_error = 0;        // relative, of the root of correction2

  // Of the working copy; precision 0: it is not rounded.
  int copy_precision = 0;
  int copy_min_exponent = 0;
  double copy_largest = 0;
  bool copy_has_infinity = true;
};

// No instruction set has more lanes.
inline constexpr size_t kStepLine = 8;

// By StepField, `count` doubles each. Null where nothing is read.
using StepColumns = std::array<const double*, kStepFields>;

// Of `count` elements: StepFormula::Expect. No alignment is required.
// REQUIRES: columns of all that the quantity is made of.
void ExpectAfterStep(const StepConstants& constants, StepQuantity quantity,
                     const StepColumns& columns, size_t count, double* value,
                     double* bound);

// The headroom of what was recorded: StepHeadroom, of each element.
void HeadroomsOfStep(const double* recorded, const double* value,
                     const double* bound, size_t count, double* headroom);

}  // namespace ttrace

#endif  // TTRACE_SRC_STEP_STEP_KERNEL_H_
