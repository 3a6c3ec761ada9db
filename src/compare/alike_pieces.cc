#include "src/compare/alike_pieces.h"

#include <algorithm>
#include <set>

#include "src/compare/instances.h"
#include "src/compare/summaries/compare_summaries.h"

namespace ttrace {
namespace {

bool LieAlike(const Record& a, const Record& b) {
  return a.rank() == b.rank() && a.micro_batch() == b.micro_batch() &&
         a.layout() == b.layout() && a.placements() == b.placements() &&
         a.reduced_over() == b.reduced_over() && a.scale() == b.scale();
}

Result<TensorDigest> DigestOf(const Trace& trace, const Record& record) {
  TTRACE_ASSIGN_OR_RETURN(const TensorSummary summary,
                          trace.GivesValues(record)
                              ? SummarizeStored(trace, record, 0)
                              : ReadSummary(trace, record));
  return summary.digest;
}

Result<bool> HaveSameBits(const Trace& a_trace, const Record& a,
                          const Trace& b_trace, const Record& b) {
  if (a.dtype() != b.dtype()) return false;
  if (a.holds_values() && b.holds_values()) {
    return a.extent().xxh3 == b.extent().xxh3;
  }
  TTRACE_ASSIGN_OR_RETURN(const TensorDigest x, DigestOf(a_trace, a));
  TTRACE_ASSIGN_OR_RETURN(const TensorDigest y, DigestOf(b_trace, b));
  return x == y;
}

}  // namespace

bool AreCutAlike(const TensorPieces& a, const TensorPieces& b) {
  if (a.pieces.size() != b.pieces.size()) return false;
  for (size_t i = 0; i < a.pieces.size(); ++i) {
    if (!LieAlike(a.pieces[i], b.pieces[i])) return false;
  }
  return true;
}

Result<std::vector<int>> RanksOfOtherBits(const TensorPieces& reference,
                                          const TensorPieces& candidate) {
  std::set<int> ranks;
  for (size_t i = 0; i < reference.pieces.size(); ++i) {
    const Record& mine = candidate.pieces[i];
    TTRACE_ASSIGN_OR_RETURN(const bool same,
                            HaveSameBits(*reference.trace, reference.pieces[i],
                                         *candidate.trace, mine));
    if (!same) ranks.insert(mine.rank());
  }
  return std::vector<int>(ranks.begin(), ranks.end());
}

bool HasTermsOrFactors(const TensorPieces& pieces) {
  return std::any_of(pieces.pieces.begin(), pieces.pieces.end(),
                     [](const Record& piece) {
                       return IsTerm(piece) || piece.scale() != Scale{};
                     });
}

}  // namespace ttrace
