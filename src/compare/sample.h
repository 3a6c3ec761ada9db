// A bounded look at the values of tensors: the same places of each.
//
// Thread safety: pure functions of const inputs.

#ifndef TTRACE_SRC_COMPARE_SAMPLE_H_
#define TTRACE_SRC_COMPARE_SAMPLE_H_

#include <cstdint>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/compare_tensor.h"
#include "src/trace/record_table.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

struct SampledBox {
  Shape begin;
  Shape size;
};

// Boxes spread evenly over a tensor of `shape`, of at most `max_elements` (at
// least 1) together; one box of everything where that fits.
std::vector<SampledBox> PlanSample(const Shape& shape, int64_t max_elements);

// The values of all boxes, one after the other, as ReadBox reads them.
Result<std::vector<double>> ReadSample(const TensorPieces& pieces,
                                       const std::vector<SampledBox>& boxes,
                                       const CompareOptions& options = {});

// Where in the global tensor element `index` of such a sample lies.
Shape PlaceInSample(const std::vector<SampledBox>& boxes, size_t index);

// What one rank holds, as values: a term of a Partial stands for itself.
// The pieces point into this object, which therefore stays where it is.
class RankPieces {
 public:
  RankPieces(const TensorPieces& all, int rank);
  RankPieces(const RankPieces&) = delete;
  RankPieces& operator=(const RankPieces&) = delete;

  bool empty() const { return records_.empty(); }
  // REQUIRES: !empty()
  const TensorPieces& pieces() const { return pieces_; }

 private:
  RecordTable records_;
  TensorPieces pieces_;
};

// The pieces of one micro-batch; `pieces` of the result is empty if there are
// none.
TensorPieces OfMicroBatch(const TensorPieces& all, int micro_batch);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_SAMPLE_H_
