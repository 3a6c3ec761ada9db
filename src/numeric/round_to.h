// The nearest number of a shorter format, ties to even, as a double: one
// rounding, where a way through float would make two.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_NUMERIC_ROUND_TO_H_
#define TTRACE_SRC_NUMERIC_ROUND_TO_H_

#include "ttrace/dtype.h"

namespace ttrace {

// The nearest number with `precision` significand bits whose exponent is not
// below `min_exponent` (denormals). Has no largest exponent.
double RoundTo(double x, int precision, int min_exponent);

// As `dtype` would hold x: infinite beyond its range, or NaN where the format
// has no infinity (E4M3FN). Integers and booleans: x itself.
double RoundTo(double x, DType dtype);

// Of numbers of full precision, the smallest exponent. REQUIRES: `dtype` is
// floating.
int MinExponent(DType dtype);

// What a format can hold beside its precision.
struct FloatRange {
  double tiny = 0;     // smallest positive number of full precision
  double step = 0;     // between denormals
  double largest = 0;  // finite
};
// REQUIRES: `dtype` is floating.
FloatRange RangeOf(DType dtype);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_ROUND_TO_H_
