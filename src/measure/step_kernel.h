// The arithmetic of StepFormula, many elements at a time: what each must be
// after the step, and how far from it honest arithmetic may be. The bounds are
// derived in docs/tolerance.md, "The optimizer's step".
//
// All of it is exactly rounded operations in one order, without fused
// multiply-adds, so that every instruction set gives the same bits.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_MEASURE_STEP_KERNEL_H_
#define TTRACE_SRC_MEASURE_STEP_KERNEL_H_

#include <array>
#include <cstddef>
#include <limits>

#include "src/measure/step_quantity.h"

namespace ttrace {

// What is the same for all elements.
struct StepConstants {
  struct Format {
    double unit = 0;     // unit round-off
    double tiny = 0;     // what underflow may lose
    double largest = 0;  // finite
    double growth = 1;   // of errors, by terms of second order and above
  };

  bool adam = true;
  double lr = 0;
  double weight_decay = 0;  // 0: none
  bool decoupled = false;
  bool maximize = false;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  bool amsgrad = false;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  bool first_step = false;  // SGD: there was no momentum buffer before
  bool eps_inside_root = false;

  // Of the gradient.
  double clip_value = std::numeric_limits<double>::infinity();
  double gradient_scale = 1;
  double clip = 1;
  double clip_error = 0;               // of `clip`, absolute
  bool gradient_is_shortened = false;  // to the dtype of the arithmetic

  Format own;       // of the arithmetic
  Format gradient;  // coarser of the gradient's and the arithmetic's
  Format first;     // as stored; also of the momentum buffer
  Format second;
  Format largest;
  bool largest_is_second = true;  // stored alike
  double square_largest = 0;      // squares from here on may overflow
  double scalar = 0;  // roundoff of hyperparameters and of a kernel's registers
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

// By StepField, `count` doubles each. Null where nothing is read.
using StepColumns = std::array<const double*, kStepFields>;

// Of `count` elements: StepFormula::Expect. REQUIRES: not kStepCount; columns
// of all that the quantity is made of. No alignment is required.
void ExpectAfterStep(const StepConstants& constants, StepQuantity quantity,
                     const StepColumns& columns, size_t count, double* value,
                     double* bound);

// The headroom of what was recorded: StepHeadroom, of each element.
void HeadroomsOfStep(const double* recorded, const double* value,
                     const double* bound, size_t count, double* headroom);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_STEP_KERNEL_H_
