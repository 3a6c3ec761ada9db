// A digest of a tensor's bits that does not depend on how it is sharded.
//
// Positional: a two-level multilinear hash (Carter and Wegman, "Universal
// classes of hash functions", 1979, with fixed public keys). The global tensor
// in row-major order is a string of bytes; w_n is its little-endian 32-bit word
// n, b = n / 1024 and j = n % 1024. Then
//     lane t = sum over n of K_t(b) * k_t[j] * (w_n ^ C)   mod 2^64,   t = 0, 1
// with keys k_t of 32 bits, none 0 and no two equal, and odd K_t of 64 bits.
// A term is linear in the bytes of its word, so cuts may fall anywhere and the
// digests of shards add up to that of the whole, bit by bit, on every
// instruction set. C makes zeros count: a shard of zeros that is missing or
// there twice is seen.
//
// A change of one word, and two different words of one block swapped, are never
// missed. Any other change in one block is missed with a probability of 2^-64
// over the choice of keys; changes of several blocks at worst with 2^-54. Keys
// are public: this finds faults, not forgeries.
//
// Multiset: the sum of a fixed mixing function of each element's bits, the same
// in any order. Where it is equal and the positional digest is not, elements
// have changed places.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_NUMERIC_DIGEST_H_
#define TTRACE_SRC_NUMERIC_DIGEST_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/numeric/layout_runs.h"
#include "ttrace/status.h"

namespace ttrace {

// Of the elements that were added. Tensors are compared by it only if their
// global shapes and dtypes are equal.
struct TensorDigest {
  std::array<uint64_t, 2> positional = {};
  uint64_t multiset = 0;
  int64_t count = 0;
  bool operator==(const TensorDigest&) const = default;

  // Those of another part of the same tensor.
  void Merge(const TensorDigest& other) {
    positional[0] += other.positional[0];
    positional[1] += other.positional[1];
    multiset += other.multiset;
    count += other.count;
  }
};

// Adds `count` elements back to back, of which the first has the row-major
// index `logical`.
void AddDigest(const std::byte* elements, DType dtype, uint64_t logical,
               size_t count, TensorDigest* digest);

// Adds a local tensor of any dtype.
// Fails with kInvalidArgument if strides differ from the layout in length.
Status AddDigest(const PlacedTensor& tensor, TensorDigest* digest);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_DIGEST_H_
