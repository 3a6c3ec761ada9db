// A double as an element of any dtype.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_NUMERIC_NARROW_H_
#define TTRACE_SRC_NUMERIC_NARROW_H_

#include <cstddef>

#include "ttrace/dtype.h"

namespace ttrace {

// Stores the nearest element, ties to even, in one rounding: beyond a float's
// range infinity, or NaN where there is none (E4M3FN). Integers saturate, and
// NaN is 0 there. `out`: Info(dtype).itemsize bytes of any alignment.
void Narrow(DType dtype, double x, std::byte* out);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_NARROW_H_
