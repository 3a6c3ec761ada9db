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

// Places of a whole tensor that are kept beside a sketch, at most: as a rule 16
// x 16, so that slices of 16 elements can be told apart at the bounds of 16-bit
// runs (diagnose/slices.h).
inline constexpr int64_t kSamplePlaces = 256;

// Which places: along each dimension some indices, and all of their
// combinations, so that slices and rows of the tensor are seen in part, at the
// same indices each.
//
// Every dimension begins with one index. The dimension that has fewest, the
// last one of several, is given twice as many, or all; and so on, until that
// would be more than kSamplePlaces. Of n indices k are floor(i n / k) + floor(n
// / (2 k)): in the middle of equal ranges, and equally far apart wherever k
// divides n, so that a shard that took another's place shows its elements.
class SampleGrid {
 public:
  explicit SampleGrid(const Shape& shape);

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
  std::vector<int64_t> places;  // numbers in the grid, rising
  DType dtype = DType::kF32;
  std::vector<std::byte> values;  // of the places, as they are in the tensor

  // Adds that of another part of the tensor. Fails with kInvalidArgument if it
  // is of another dtype, or has a place that this one has.
  Status Merge(const ValueSample& other);
  bool operator==(const ValueSample&) const = default;
};

// REQUIRES: a stride for each dimension.
ValueSample TakeSample(const PlacedTensor& tensor);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_SUMMARIES_VALUE_SAMPLE_H_
