// Uniform and normal numbers from random words, in tiles of 64 as
// noise_kernel.h makes them.
//
// Normal: Box and Muller, "A note on the generation of random normal deviates"
// (1958): words w and w + 16 of a tile make values w and w + 16. Logarithm,
// sine and cosine are the polynomials of Cephes (Moshier) in fp32. There is
// nothing but + - * sqrt, conversions of integers below 2^24 and bits, in a
// stated order and never fused, so that every machine makes the same bits.
// |value| <= 5.77 * scale.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_NUMERIC_RANDOM_KERNEL_H_
#define TTRACE_SRC_NUMERIC_RANDOM_KERNEL_H_

#include <cstddef>
#include <cstdint>

namespace ttrace {

// Of mean 0 and standard deviation `scale`. `words`, `out`: 64 * `tiles`.
void NormalOfWords(const uint32_t* words, size_t tiles, float scale,
                   float* out);

// In (-scale, scale), of 24 bits; times `scale`, rounded once.
void UniformOfWords(const uint32_t* words, size_t tiles, float scale,
                    float* out);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_RANDOM_KERNEL_H_
