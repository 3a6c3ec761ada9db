// A look at tensors some of whose values were not kept: at those that were
// (value_sample.h).
//
// For a diagnosis, which says why a tensor is wrong that is known to be wrong,
// and for a factor that most gradients have in common (experiment/loss_unit.h).
// A sample that is right says nothing of the rest, so no verdict uses it.
//
// Thread safety: pure functions of const inputs.

#ifndef TTRACE_SRC_COMPARE_SUMMARIES_KEPT_SAMPLE_H_
#define TTRACE_SRC_COMPARE_SUMMARIES_KEPT_SAMPLE_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/compare_options.h"
#include "src/compare/sample.h"
#include "src/compare/summaries/value_sample.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

// Whether the values of all pieces can be read.
bool GivesValues(const TensorPieces& pieces);

// Whether of all pieces without values a sample was kept. Fails as ReadSummary.
Result<bool> HasSamples(std::initializer_list<const TensorPieces*> tensors);

// Boxes for ReadKept of all these tensors, which are of `shape`: as PlanSample
// if all have their values, else the places of their samples, row-major.
// Fails with kIncomparable if one has neither, and as ReadSummary.
Result<std::vector<SampledBox>> PlanKept(
    const Shape& shape, int64_t max_elements,
    std::initializer_list<const TensorPieces*> tensors);

// As ReadSample. Of a tensor that lacks values, only boxes of its samples'
// places can be read: fails with kIncomparable for any other, for rows that are
// in another order than they were recorded in, and as ReadSummary.
Result<std::vector<double>> ReadKept(const TensorPieces& pieces,
                                     const std::vector<SampledBox>& boxes,
                                     const CompareOptions& options = {});

// Both sides' values at the same places of the culprit's tensor.
struct SampledPair {
  std::vector<SampledBox> boxes;
  std::vector<double> reference;
  std::vector<double> candidate;  // in the reference's order of rows
  // A side lacks values: this is what was kept. Indices of each dimension.
  bool of_summaries = false;
  std::vector<std::vector<int64_t>> indices;
};
// `max_elements` are of tensors with values. Fails as PlanKept and ReadKept.
Result<SampledPair> SamplePair(const TensorPieces& reference,
                               const TensorPieces& candidate,
                               int64_t max_elements,
                               const CompareOptions& options);

// Elements whose error is beyond 4 x bound x the root mean square of the
// reference's finite values: of a clean tensor's elements, by Markov's
// inequality, not 1 in 16.
std::vector<size_t> WrongElements(const SampledPair& pair, double bound);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_SUMMARIES_KEPT_SAMPLE_H_
