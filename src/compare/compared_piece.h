// ComparedPiece: what is kept of a piece that was compared with a reference
// where it was computed, instead of its values.
//
// A check of the same two runs finds in it, bit for bit, the sums that it would
// have made of the values. What any other run differs by it can only estimate,
// of the summary, where there is one.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_COMPARE_COMPARED_PIECE_H_
#define TTRACE_SRC_COMPARE_COMPARED_PIECE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/compare/error_sums.h"
#include "src/compare/instances.h"
#include "src/compare/reference_instances.h"
#include "src/compare/summaries/tensor_summary.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

struct ComparedPiece {
  uint64_t xxh3 = 0;  // of the values: Extent
  // With each leg of Record::compared_with.
  struct With {
    uint64_t reference = 0;    // which values these were: DigestOf
    double element_scale = 0;  // CompareOptions
    ErrorSums sums;
  };
  std::vector<With> legs;
  // Of the values: for a replay that differs, and for another reference.
  std::optional<TensorSummary> summary;
};

// Little endian.
std::vector<std::byte> EncodeComparedPiece(const ComparedPiece& piece);
// Fails with kCorrupt if `bytes` are not what such a piece becomes.
Result<ComparedPiece> DecodeComparedPiece(std::span<const std::byte> bytes);
// Of what `record` of `trace` holds. Fails as Trace::ReadInstead too.
// REQUIRES: !record.compared_with().empty()
Result<ComparedPiece> ReadComparedPiece(const Trace& trace,
                                        const Record& record);

// Whether a piece was compared where it was computed, and its trace has no
// values to give.
bool WasComparedInPlace(const TensorPieces& pieces);

// XXH3 of the values of `record`, whether they were kept or compared in place.
// Fails as Trace::Verify, and as ReadComparedPiece.
// REQUIRES: it was neither measured nor summarised.
Result<uint64_t> DigestOfValues(const Trace& trace, const Record& record);

// Of the values that these instances are made of, by their checksums.
uint64_t DigestOf(const std::vector<PlacedInstance>& instances);

// What was found of a candidate where it was computed, if it was compared there
// with these values of the reference, in this place, by this `element_scale`
// (CompareOptions; 0: it is not asked). Nothing: it has to be compared, for
// which its values have to be there. Fails as ReadComparedPiece.
struct FoundSums {
  std::optional<ErrorSums> sums;
  bool can_compare = true;
};
Result<FoundSums> FindCompared(const std::vector<PlacedInstance>& reference,
                               const PlacedInstance& candidate,
                               double element_scale);
// Of what lies in `region`. Of values that were compared in place nothing is
// known if it has but some of them.
Result<FoundSums> FindComparedWithin(
    const std::vector<PlacedInstance>& reference,
    const PlacedInstance& candidate, const Layout& region,
    double element_scale);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARED_PIECE_H_
