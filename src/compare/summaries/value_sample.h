// ValueSample: a few values of a tensor, kept where the rest are not.
//
// The places are a function of the global shape alone, so whoever holds a shard
// keeps what lies in it: samples of shards are together that of the whole, and
// those of copies, of terms of a sum and of other runs are of the same
// elements. Not of the name: one value has several names, and one summary.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_COMPARE_SUMMARIES_VALUE_SAMPLE_H_
#define TTRACE_SRC_COMPARE_SUMMARIES_VALUE_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/numeric/layout_runs.h"
#include "ttrace/dtype.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

// Places of a whole tensor that are kept beside a sketch and beside a digest
// alone. 256 are as a rule 16 x 16: slices of 16 elements can be told apart at
// the bounds of 16-bit runs (diagnose/slices.h). 64 are enough to see a factor,
// zeros or a sum, which ask for 8 to 32 elements, and take 2 to 4 times what a
// digest does.
inline constexpr int64_t kSampleBesideSketch = 256;
inline constexpr int64_t kSampleBesideDigest = 64;

// Which places: along each dimension some indices, and all of their
// combinations, so that slices and rows of the tensor are seen in part, at the
// same indices each.
//
// Every dimension begins with one index. The dimension that has fewest, the
// last one of several, is given twice as many, or all; and so on, until that
// would be more than `most` places. Of n indices k are floor(i n / k) + s, with
// s = floor(n / (2 K)), K being k of kSampleBesideSketch: in the middle of
// equal ranges, and equally far apart wherever k divides n, so that a shard
// that took another's place shows its elements. The places of fewer are some of
// those of more.
class SampleGrid {
 public:
  // REQUIRES: 1 <= most <= kSampleBesideSketch
  SampleGrid(const Shape& shape, int64_t most);

  // Rising, of each dimension.
  const std::vector<std::vector<int64_t>>& indices() const { return indices_; }
  // Places; 0 for a tensor without elements. Their numbers are row-major.
  int64_t count() const;
  // In the tensor.
  Shape at(int64_t place) const;

  // The places that `layout` holds, by number, and where they lie in a local
  // tensor with such strides (elements).
  // REQUIRES: the layout is of this shape; a stride for each dimension.
  struct Held {
    int64_t place = 0;
    int64_t local = 0;
    bool operator==(const Held&) const = default;
  };
  std::vector<Held> HeldBy(const Layout& layout,
                           std::span<const int64_t> strides) const;
  int64_t CountHeldBy(const Layout& layout) const;

 private:
  std::vector<std::vector<int64_t>> indices_;
};

struct ValueSample {
  int64_t most = 0;             // of the grid
  std::vector<int64_t> places;  // numbers in it, rising
  DType dtype = DType::kF32;
  std::vector<std::byte> values;  // of the places, as they are in the tensor

  // Adds that of another part of the tensor. Fails with kInvalidArgument if it
  // is of another grid or dtype, or has a place that this one has.
  Status Merge(const ValueSample& other);
  bool operator==(const ValueSample&) const = default;
};

// REQUIRES: a stride for each dimension, and `most` as above.
ValueSample TakeSample(const PlacedTensor& tensor, int64_t most);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_SUMMARIES_VALUE_SAMPLE_H_
