// Noise that is a pure function of (key, logical index): the same on every
// rank, under every mesh and in a recomputed forward.
//
// Element i of the noise called `key` is uniform in (-1, 1), from Philox4x32-10
// with a counter derived from i and a key derived from the seed; XXH3 of the
// name is the counter's upper half. Perturb() makes round(x * (1 + u * noise))
// of x in the tensor's own dtype, u its unit round-off: the smallest relative
// change that the dtype can mean. The same on every instruction set, bit by bit
// (noise_kernel.h).
//
// Which word of which counter is element i is a contract (stored references
// depend on it): tile t = i / 64 uses counters 16 t .. 16 t + 15, and element
// i is word (i % 64) / 16 of counter 16 t + i % 16. So the four words of 16
// counters fill 64 consecutive elements without a transposition.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_NUMERIC_NOISE_H_
#define TTRACE_SRC_NUMERIC_NOISE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/base/parts.h"
#include "ttrace/dtype.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

struct NoiseKey {
  uint64_t seed = 0;
  uint64_t name = 0;  // XXH3-64 of the name
};
NoiseKey MakeNoiseKey(uint64_t seed, std::string_view name);

// Element at row-major index `logical_index` of the global tensor. 24-bit
// resolution, never exactly 0 or +-1.
float UniformAt(const NoiseKey& key, uint64_t logical_index);

// Writes a local tensor (floating dtype, any strides, in elements) with its
// noise to `to`. `from` may be `to` with the same strides; otherwise they must
// not overlap. NaN and Inf stay, and no finite value becomes Inf.
// Fails with kInvalidArgument if strides differ from `layout` in length or
// those of `to` lay two elements on one (an expanded tensor), kUnsupported for
// integers, bool and 8-bit floats. `parts`: has the work done.
Status Perturb(const NoiseKey& key, const Layout& layout, DType dtype,
               const std::byte* from, std::span<const int64_t> from_strides,
               std::byte* to, std::span<const int64_t> to_strides,
               const DoParts& parts = DoInTurn);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_NOISE_H_
