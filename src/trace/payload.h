// What the bytes of a record are: one of four things, and never two of them.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_TRACE_PAYLOAD_H_
#define TTRACE_SRC_TRACE_PAYLOAD_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "ttrace/leg.h"

namespace ttrace {

// `same_as`: the bytes are those of this earlier record of the rank (its
// sequence), which holds the same and is of the same dtype: they are there
// once.

// The values of the tensor.
struct KeptValues {
  std::optional<int64_t> same_as;
  bool operator==(const KeptValues&) const = default;
};

// A summary of the values, of which only the comparison knows what it says.
enum class Summary : uint8_t { kDigest, kSketch };
std::string_view ToString(Summary summary);
std::optional<Summary> ParseSummary(std::string_view text);
struct KeptSummary {
  Summary kind = Summary::kDigest;
  std::optional<int64_t> same_as;
  bool operator==(const KeptSummary&) const = default;
};

// What the values are beside those of another run (a reference), which was at
// hand when they were written: numbers that only the comparison understands.
// Which legs of that run: one at least, with names of at most
// kMaxComparedLegBytes bytes.
using ComparedWith = std::vector<Leg>;
struct KeptComparison {
  ComparedWith legs;
  std::optional<int64_t> same_as;
  bool operator==(const KeptComparison&) const = default;
};

// What the values differ by from those of an earlier record of the rank:
// numbers that only who asked for them understands (TraceWriter's Reducer).
struct KeptDifference {
  int64_t against = 0;  // sequence of that record
  bool operator==(const KeptDifference&) const = default;
};

using Payload =
    std::variant<KeptValues, KeptSummary, KeptComparison, KeptDifference>;

std::optional<int64_t> SameAs(const Payload& payload);
// REQUIRES: `payload` is not KeptDifference, or `sequence` is none.
void SetSameAs(std::optional<int64_t> sequence, Payload* payload);

// The earlier record that a payload refers to, whatever for: a sequence. A
// RecordTable keeps it apart from the rest.
std::optional<int64_t> OriginOf(const Payload& payload);
Payload WithoutOrigin(Payload payload);
// REQUIRES: if `payload` is KeptDifference, there is an origin.
Payload WithOrigin(Payload payload, std::optional<int64_t> origin);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_PAYLOAD_H_
