// Random tensors that are a pure function of (key, distribution, scale, logical
// index): every rank makes its own part, and all of them together are the same
// whole under every mesh, on every machine, bit by bit.
//
// Elements are made of the words of noise.h (Philox4x32-10): with the same key
// a random tensor depends on the noise. Keys of names of their own keep them
// apart.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_NUMERIC_RANDOM_TENSOR_H_
#define TTRACE_SRC_NUMERIC_RANDOM_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/numeric/noise.h"
#include "ttrace/dtype.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

enum class Distribution {
  kNormal,   // mean 0, standard deviation `scale`
  kUniform,  // in (-scale, scale)
};

// Writes a local tensor of a floating dtype, any strides (in elements). Values
// are those of fp32 (random_kernel.h), rounded once more to `dtype`.
// Fails with kInvalidArgument if strides differ from `layout` in length,
// kUnsupported for integers and bool.
Status FillRandom(const NoiseKey& key, Distribution distribution, float scale,
                  const Layout& layout, DType dtype, std::byte* to,
                  std::span<const int64_t> strides);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_RANDOM_TENSOR_H_
