// The instruction sets that kernels are made for. They need vectors of a size
// that is known while compiling: where there are only scalable ones (SVE, RVV)
// the next best set is used, NEON on Arm. In place of <hwy/targets.h>, and
// before <hwy/foreach_target.h>, so that all of the program speaks of the same
// sets. Of x86 SSE4, AVX2 and AVX-512, and what Highway emulates where there is
// none of them: no set in between, which costs a fifth of what compiling
// kernels takes.

#ifndef TTRACE_SRC_NUMERIC_FIXED_VECTORS_H_
#define TTRACE_SRC_NUMERIC_FIXED_VECTORS_H_

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#include <hwy/targets.h>  // IWYU pragma: export

#endif  // TTRACE_SRC_NUMERIC_FIXED_VECTORS_H_
