// TensorSummary: what is kept of a piece of a tensor instead of its values: a
// digest (numeric/digest.h) and, for an estimate of how far another one is, a
// sketch (numeric/sketch.h), beside sums that are exact. And a few values
// (value_sample.h), for a diagnosis: no verdict is made of them.
//
// All of it belongs to places in the global tensor, so that the summaries of
// shards are together that of the whole.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_COMPARE_SUMMARIES_TENSOR_SUMMARY_H_
#define TTRACE_SRC_COMPARE_SUMMARIES_TENSOR_SUMMARY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/base/parts.h"
#include "src/compare/summaries/value_sample.h"
#include "src/numeric/digest.h"
#include "src/numeric/layout_runs.h"
#include "src/numeric/sketch.h"
#include "src/trace/record_fields.h"
#include "ttrace/dtype.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

struct TensorSummary {
  int64_t count = 0;
  int64_t nonfinite = 0;
  // Over finite elements.
  double sum_sq = 0;
  double max_abs = 0;
  TensorDigest digest;
  std::optional<Sketch> sketch;
  // Nothing: it is of a version of ttrace that kept none.
  std::optional<ValueSample> sample;

  // Adds that of another part of the tensor, with the same sketch or none; a
  // sample that only one of them has is left out.
  Status Merge(const TensorSummary& other);
  // Says of which piece it is, when it has been read: an encoding names neither
  // the places of the sample nor their dtype. Fails with kCorrupt if its
  // numbers of elements are not those of such a piece.
  Status Place(const Layout& layout, DType dtype);
};

// Of a floating dtype. `buckets`: of the sketch, a size that Sketch takes; 0:
// none is made. Its sample is of as many places as belong beside it. Fails with
// kUnsupported for another dtype, kInvalidArgument if strides differ from the
// layout in length. `parts`: has the work done; that changes no bit.
Result<TensorSummary> Summarize(const PlacedTensor& tensor, size_t buckets,
                                const DoParts& parts = DoInTurn);

// Little endian; buckets as float32. A summary of such a piece takes this many.
int64_t EncodedSummaryBytes(size_t buckets, const Layout& layout, DType dtype);
std::vector<std::byte> EncodeSummary(const TensorSummary& summary);
// Fails with kCorrupt for anything else than EncodeSummary gives. A sample has
// no places before TensorSummary::Place.
Result<TensorSummary> DecodeSummary(std::span<const std::byte> bytes);

// What the summary is to be called in a trace.
inline Summary KindOf(const TensorSummary& summary) {
  return summary.sketch ? Summary::kSketch : Summary::kDigest;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_SUMMARIES_TENSOR_SUMMARY_H_
