#include "src/compare/compared_piece.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "src/compare/layout_overlap.h"
#include "src/compare/record_cache.h"
#include "src/compare/recorded_layout.h"
#include "src/trace/format.h"

namespace ttrace {
namespace {

static_assert(std::endian::native == std::endian::little);

// Of what the bytes mean.
constexpr uint32_t kPlain = 1;
constexpr uint32_t kWithSummary = 2;  // which is what follows the legs

Error NoComparison() {
  return Error(ErrorCode::kCorrupt, "no comparison of a piece");
}

class Bytes {
 public:
  template <typename T>
  void Add(const T& value) {
    static_assert(std::is_arithmetic_v<T>);
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), begin, begin + sizeof(T));
  }
  void Add(const ExactSum& sum) {
    const ExactSum::Parts parts = sum.TakeApart();
    Add(static_cast<uint8_t>(parts.negative ? 1 : 0));
    Add(static_cast<uint8_t>(parts.first));
    Add(static_cast<uint8_t>(parts.digits.size()));
    Add(parts.nonfinite);
    for (const uint32_t digit : parts.digits) Add(digit);
  }
  void AddAll(const std::vector<std::byte>& bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> Take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // What lies behind the end is zero, and the bytes are none of a piece.
  template <typename T>
  void Get(T* out) {
    static_assert(std::is_arithmetic_v<T>);
    *out = 0;
    if (bytes_.size() < sizeof(T)) {
      good_ = false;
      return;
    }
    std::memcpy(out, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
  }
  void Get(ExactSum* out) {
    uint8_t negative = 0;
    uint8_t first = 0;
    uint8_t digits = 0;
    ExactSum::Parts parts;
    Get(&negative);
    Get(&first);
    Get(&digits);
    Get(&parts.nonfinite);
    parts.negative = negative == 1;
    parts.first = first;
    for (int i = 0; i < digits; ++i) Get(&parts.digits.emplace_back());
    const std::optional<ExactSum> sum = ExactSum::PutTogether(parts);
    good_ = good_ && negative <= 1 && sum.has_value();
    if (sum) *out = *sum;
  }
  bool good() const { return good_; }
  std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  bool good_ = true;
};

// All fields, in one order for both ways.
template <typename Visit, typename Sums>
void ForEachField(Sums& sums, const Visit& visit) {
  visit(sums.count);
  visit(sums.mismatched);
  visit(sums.nonfinite_ref);
  visit(sums.nonfinite_cand);
  visit(sums.nonfinite_differ);
  visit(sums.sum_sq_err);
  visit(sums.sum_err_ref);
  visit(sums.sum_sq_ref);
  visit(sums.max_abs_err);
  visit(sums.max_abs_ref);
  visit(sums.max_elem);
  visit(sums.sum_sq_elem);
  visit(sums.max_block_sq_err);
}

// As far as numbers tell.
bool IsOf(const ComparedPiece& piece, const Record& record) {
  const int64_t elements = record.layout().local_count();
  return piece.legs.size() == record.compared_with().size() &&
         std::all_of(piece.legs.begin(), piece.legs.end(),
                     [&](const ComparedPiece::With& leg) {
                       return leg.sums.count <= elements;
                     });
}

bool IsAsRecorded(const PlacedInstance& placed) {
  const Term& term = placed.instance.terms.front();
  const auto number = static_cast<size_t>(term.record.number());
  const RecordTable& records = placed.instance.trace->records();
  return number < records.size() && records[number].layout() == placed.layout &&
         term.weight == term.record.scale().value();
}

bool IsCompared(const Instance& instance) {
  return instance.terms.size() == 1 &&
         !instance.terms.front().record.compared_with().empty();
}

bool GivesValues(const Instance& instance) {
  return instance.trace->GivesValues(instance.terms.front().record);
}

// Of values that were compared in place with these. Nothing: they were not.
// REQUIRES: IsCompared(candidate.instance)
Result<std::optional<ErrorSums>> FindComparison(
    const std::vector<PlacedInstance>& reference,
    const PlacedInstance& candidate, double element_scale) {
  using Found = std::optional<ErrorSums>;
  if (reference.empty()) return Found();
  const Record& record = candidate.instance.terms.front().record;
  const ComparedWith& legs = record.compared_with();
  const auto leg =
      std::find(legs.begin(), legs.end(),
                reference.front().instance.terms.front().record.leg());
  if (leg == legs.end() || !IsAsRecorded(candidate)) return Found();
  TTRACE_ASSIGN_OR_RETURN(const ComparedPiece piece,
                          ReadComparedPiece(*candidate.instance.trace, record));
  const ComparedPiece::With& with =
      piece.legs[static_cast<size_t>(leg - legs.begin())];
  if (with.reference != DigestOf(reference)) return Found();
  ErrorSums sums = with.sums;
  if (element_scale == 0) {
    sums.max_elem = 0;
    sums.sum_sq_elem = ExactSum();
  } else if (element_scale != with.element_scale) {
    return Found();
  }
  return Found(sums);
}

}  // namespace

std::vector<std::byte> EncodeComparedPiece(const ComparedPiece& piece) {
  Bytes out;
  out.Add(piece.summary ? kWithSummary : kPlain);
  out.Add(static_cast<uint32_t>(piece.legs.size()));
  out.Add(piece.xxh3);
  for (const ComparedPiece::With& leg : piece.legs) {
    out.Add(leg.reference);
    out.Add(leg.element_scale);
    ForEachField(leg.sums, [&](const auto& field) { out.Add(field); });
  }
  if (piece.summary) out.AddAll(EncodeSummary(*piece.summary));
  return std::move(out).Take();
}

Result<ComparedPiece> DecodeComparedPiece(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  uint32_t kind = 0;
  uint32_t legs = 0;
  ComparedPiece out;
  reader.Get(&kind);
  reader.Get(&legs);
  reader.Get(&out.xxh3);
  if (kind != kPlain && kind != kWithSummary) {
    return Error(ErrorCode::kUnsupported,
                 "a comparison of kind " + std::to_string(kind) +
                     ", made by another version of ttrace");
  }
  if (legs > kMaxComparedLegs) return NoComparison();
  for (uint32_t i = 0; i < legs; ++i) {
    ComparedPiece::With& leg = out.legs.emplace_back();
    reader.Get(&leg.reference);
    reader.Get(&leg.element_scale);
    ForEachField(leg.sums, [&](auto& field) { reader.Get(&field); });
  }
  if (!reader.good()) return NoComparison();
  if (kind == kWithSummary) {
    TTRACE_ASSIGN_OR_RETURN(out.summary, DecodeSummary(reader.rest()));
  } else if (!reader.rest().empty()) {
    return NoComparison();
  }
  return out;
}

Result<ComparedPiece> ReadComparedPiece(const Trace& trace,
                                        const Record& record) {
  TTRACE_ASSIGN_OR_RETURN(const auto bytes, trace.ReadInstead(record));
  Result<ComparedPiece> decoded = DecodeComparedPiece(bytes);
  if (!decoded.ok()) return NamedPiece(decoded.error(), record).error();
  ComparedPiece piece = *std::move(decoded);
  if (!IsOf(piece, record)) return NamedPiece(NoComparison(), record).error();
  if (piece.summary) {
    const Status placed =
        piece.summary->Place(RecordedLayout(trace, record), record.dtype());
    if (!placed.ok()) return NamedPiece(placed, record).error();
  }
  return piece;
}

bool WasComparedInPlace(const TensorPieces& pieces) {
  return std::any_of(pieces.pieces.begin(), pieces.pieces.end(),
                     [&](const Record& record) {
                       return !record.compared_with().empty() &&
                              !pieces.trace->GivesValues(record);
                     });
}

Result<uint64_t> DigestOfValues(const Trace& trace, const Record& record) {
  if (record.compared_with().empty()) {
    TTRACE_RETURN_IF_ERROR(trace.Verify(record));
    return record.extent().xxh3;
  }
  TTRACE_ASSIGN_OR_RETURN(const ComparedPiece piece,
                          ReadComparedPiece(trace, record));
  return piece.xxh3;
}

uint64_t DigestOf(const std::vector<PlacedInstance>& instances) {
  std::vector<uint64_t> checksums;
  for (const PlacedInstance& placed : instances) {
    for (const Term& term : placed.instance.terms) {
      checksums.push_back(term.record.extent().xxh3);
      checksums.push_back(std::bit_cast<uint64_t>(term.weight));
    }
  }
  return XXH3_64bits(checksums.data(), checksums.size() * sizeof(uint64_t));
}

Result<FoundSums> FindCompared(const std::vector<PlacedInstance>& reference,
                               const PlacedInstance& candidate,
                               double element_scale) {
  if (!IsCompared(candidate.instance)) return FoundSums();
  TTRACE_ASSIGN_OR_RETURN(auto found,
                          FindComparison(reference, candidate, element_scale));
  return FoundSums{found, GivesValues(candidate.instance)};
}

Result<FoundSums> FindComparedWithin(
    const std::vector<PlacedInstance>& reference,
    const PlacedInstance& candidate, const Layout& region,
    double element_scale) {
  if (!IsCompared(candidate.instance)) return FoundSums();
  if (candidate.layout == region) {
    return FindCompared(reference, candidate, element_scale);
  }
  if (MeasureOverlap({&region}, {&candidate.layout}).both == 0) {
    return FoundSums{ErrorSums(), true};
  }
  return FoundSums{std::nullopt, GivesValues(candidate.instance)};
}

}  // namespace ttrace
