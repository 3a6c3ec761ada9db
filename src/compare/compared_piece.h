// ComparedPiece: what is kept of a piece that was compared with a reference
// where it was computed, instead of its values.
//
// A check of the same two runs finds in it, bit for bit, the sums that it would
// have made of the values. Of any other reference it says nothing.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_COMPARE_COMPARED_PIECE_H_
#define TTRACE_SRC_COMPARE_COMPARED_PIECE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/compare/compare_instances.h"
#include "src/compare/error_sums.h"
#include "src/compare/instances.h"
#include "src/compare/reference_instances.h"
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
};

// Little endian.
std::vector<std::byte> EncodeComparedPiece(const ComparedPiece& piece);
// Fails with kCorrupt if `bytes` are not what such a piece becomes.
Result<ComparedPiece> DecodeComparedPiece(std::span<const std::byte> bytes);
// Of what `record` of `trace` holds. Fails as Trace::ReadInstead too.
// REQUIRES: !record.compared_with().empty()
Result<ComparedPiece> ReadComparedPiece(const Trace& trace,
                                        const Record& record);

// Of the values that these instances are made of, by their checksums.
uint64_t DigestOf(const std::vector<PlacedInstance>& instances);

// Compares what `comparer` is for. Fails as Trace::Read.
Result<ErrorSums> CompareWithAll(const std::vector<PlacedInstance>& reference,
                                 const PlacedInstance& candidate,
                                 InstanceComparer* comparer);

// The same of values that were compared in place. Nothing where there is no
// such comparison: with these values of the reference, in this place, by this
// `element_scale` (CompareOptions; 0: it is not asked).
Result<std::optional<ErrorSums>> FindComparison(
    const std::vector<PlacedInstance>& reference,
    const PlacedInstance& candidate, double element_scale);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARED_PIECE_H_
