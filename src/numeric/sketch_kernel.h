// The buckets of sketch.h of a run of elements, in fp32.
//
// Thread safety: pure functions of their arguments.

#ifndef TTRACE_SRC_NUMERIC_SKETCH_KERNEL_H_
#define TTRACE_SRC_NUMERIC_SKETCH_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "ttrace/dtype.h"

namespace ttrace {

inline constexpr size_t kSketchLine = 16;

struct alignas(64) SketchRow {
  float bucket[kSketchLine] = {};
};

// Keys of the hash for lines whose number has the upper half `high`.
struct SketchKeys {
  uint32_t first = 0;
  uint32_t second = 0;
};
SketchKeys KeysOfLines(uint64_t seed, uint32_t high);

// The hash of a line: a variant of "lowbias32" (Wellons, "Prospecting for hash
// functions", 2018) with keys.
constexpr uint32_t HashOfLine(uint32_t line, SketchKeys keys) {
  uint32_t x = line ^ keys.first;
  x = (x ^ (x >> 16)) * 0x21F0AAAD;
  x += keys.second;
  x = (x ^ (x >> 15)) * 0x735A2D97;
  return x ^ (x >> 15);
}

// Adds `count` elements from `p` on, the first of which has the row-major index
// `logical`, to `rows` rows, a power of two.
// REQUIRES: `dtype` is a float of 16 or 32 bits.
void SketchRun(DType dtype, const std::byte* p, uint64_t logical, size_t count,
               uint64_t seed, size_t rows, SketchRow* to);

// Adds `scale` times each bucket of `count` rows to `sums`, in double, and sets
// it to zero.
void AddRows(SketchRow* rows, size_t count, double scale, double* sums);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_SKETCH_KERNEL_H_
