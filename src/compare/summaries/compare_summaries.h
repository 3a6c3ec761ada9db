// Tensors of which a side has only summaries.
//
// Thread safety: pure functions of const inputs.

#ifndef TTRACE_SRC_COMPARE_SUMMARIES_COMPARE_SUMMARIES_H_
#define TTRACE_SRC_COMPARE_SUMMARIES_COMPARE_SUMMARIES_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/error_stats.h"
#include "src/compare/instances.h"
#include "src/compare/summaries/tensor_summary.h"
#include "ttrace/status.h"

namespace ttrace {

// Whether a piece has only a summary.
bool HasSummaries(const TensorPieces& pieces);
bool HasSummaries(const Instance& instance);

// The summary that stands for a record without values, in its place. Fails with
// kIncomparable if there is none, kCorrupt if it is of another piece, and as
// Trace::ReadInstead.
// REQUIRES: the trace gives no values of it.
Result<TensorSummary> ReadSummary(const Trace& trace, const Record& record);

// Of the values of `record`, a tile at a time. `buckets`: as for Summarize.
// Fails as Trace::Read and Summarize.
// REQUIRES: the trace gives them.
Result<TensorSummary> SummarizeStored(const Trace& trace, const Record& record,
                                      size_t buckets);

// Statistics of two tensors, or of two copies of a part.
struct SummaryComparison {
  ErrorStats stats;
  Fidelity fidelity = Fidelity::kDigest;
  bool reordered = false;
};

// What two sides of equal layouts and shapes differ by: `refs` and `cands` are
// instances that hold each element once. Of what was compared in place the
// summary beside that is used. Values are summarised here, with as many buckets
// as the side without values has. Fails as CompareTensor.
Result<SummaryComparison> CompareSummaries(
    const std::vector<const Instance*>& refs,
    const std::vector<const Instance*>& cands);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_SUMMARIES_COMPARE_SUMMARIES_H_
