// A few KiB from which the distance of two tensors can be estimated, however
// they are sharded: CountSketch (Charikar, Chen and Farach-Colton, "Finding
// frequent items in data streams", 2002), one row of hashes, laid out in lines
// so that nothing is scattered.
//
// Line L = i / 16 and lane l = i % 16 of the row-major index i in the global
// tensor. Of a hash h(L) of 32 bits, bit l is the sign of lane l, bits 16..19
// are a rotation r, and the rest chooses one of the m / 16 rows of buckets:
//     bucket[16 * row + (l ^ r)] += (-1)^sign * x_i
// The sketch is linear: those of shards, of terms of a sum and of scaled
// tensors add up like the tensors (but for SketchRounding: buckets are added up
// in fp32, over at most 2^14 elements, and then in double), and it is the same
// bit by bit on every instruction set.
//
// E |S_a - S_b|^2 = |a - b|^2 with a relative deviation of sqrt(2 / m) for
// differences that are spread over many elements. A difference of one element
// is exact; of a few, two may meet in a bucket (with a probability of 1 / m a
// pair), and the estimate is then far off: intervals have room for that where
// few buckets differ (few_elements.h).
//
// Not thread-safe: one per thread, then Merge.

#ifndef TTRACE_SRC_NUMERIC_SKETCH_H_
#define TTRACE_SRC_NUMERIC_SKETCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/numeric/layout_runs.h"
#include "ttrace/status.h"

namespace ttrace {

inline constexpr size_t kSketchBuckets = 1024;
inline constexpr size_t kMinSketchBuckets = 16;
inline constexpr size_t kMaxSketchBuckets = 65536;

class Sketch {
 public:
  // All sketches that are compared or merged need the same seed.
  // REQUIRES: `buckets` is a power of two from kMinSketchBuckets to
  // kMaxSketchBuckets.
  explicit Sketch(uint64_t seed, size_t buckets = kSketchBuckets);
  // That has these, from a file. REQUIRES: as many as a sketch has.
  Sketch(uint64_t seed, std::vector<double> buckets);

  // Adds `scale` times a local tensor of a floating dtype; float64 is rounded
  // to fp32. NaN and Inf make buckets NaN or infinite.
  // Fails with kInvalidArgument if strides differ from the layout in length,
  // kUnsupported for integers and bool.
  Status Add(const PlacedTensor& tensor, double scale = 1);

  // Adds another shard, or `scale` times another term of a sum.
  // Fails with kInvalidArgument if it has another seed or size.
  Status Merge(const Sketch& other, double scale = 1);

  // What a sketch of fewer buckets of the same tensor would be.
  // Fails with kInvalidArgument for a number that is no power of two from
  // kMinSketchBuckets to this one's.
  Result<Sketch> Fold(size_t buckets) const;

  uint64_t seed() const { return seed_; }
  const std::vector<double>& buckets() const { return buckets_; }

 private:
  uint64_t seed_;
  std::vector<double> buckets_;
};

// A number, and between what it lies in at least 999 of 1000 cases of
// differences that are spread over many elements, and 997 of those that are
// not (sketch_test.cc).
struct SketchEstimate {
  double value = 0;
  double low = 0;
  double high = 0;
};

// |a - b|, of the tensors.
// Fails with kInvalidArgument if seeds or sizes differ.
Result<SketchEstimate> EstimateDistance(const Sketch& a, const Sketch& b);

// The same of tensors of such norms, with room for what both sketches round.
Result<SketchEstimate> EstimateDistance(const Sketch& a, double norm_a,
                                        const Sketch& b, double norm_b);

// What a sketch's own sums round, as a share of the tensor's norm: the rms of
// fp32 sums of n terms of equal size, each partial sum rounded, is
// u sqrt(n / 6) of the sum's.
double SketchRounding(size_t buckets);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_SKETCH_H_
