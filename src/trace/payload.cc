#include "src/trace/payload.h"

#include <utility>

#include "src/base/check.h"

namespace ttrace {
namespace {

// Of all but KeptDifference, which has none.
std::optional<int64_t>* SameAsOf(Payload* payload) {
  if (auto* values = std::get_if<KeptValues>(payload)) return &values->same_as;
  if (auto* summary = std::get_if<KeptSummary>(payload)) {
    return &summary->same_as;
  }
  if (auto* compared = std::get_if<KeptComparison>(payload)) {
    return &compared->same_as;
  }
  return nullptr;
}

}  // namespace

std::string_view ToString(Summary summary) {
  return summary == Summary::kDigest ? "digest" : "sketch";
}

std::optional<Summary> ParseSummary(std::string_view text) {
  for (const Summary summary : {Summary::kDigest, Summary::kSketch}) {
    if (ToString(summary) == text) return summary;
  }
  return std::nullopt;
}

std::optional<int64_t> SameAs(const Payload& payload) {
  if (std::holds_alternative<KeptDifference>(payload)) return std::nullopt;
  return OriginOf(payload);
}

void SetSameAs(std::optional<int64_t> sequence, Payload* payload) {
  if (std::optional<int64_t>* same_as = SameAsOf(payload)) {
    *same_as = sequence;
  } else {
    TTRACE_CHECK(!sequence, "what was measured is nothing else's");
  }
}

std::optional<int64_t> OriginOf(const Payload& payload) {
  struct Origin {
    std::optional<int64_t> operator()(const KeptValues& of) {
      return of.same_as;
    }
    std::optional<int64_t> operator()(const KeptSummary& of) {
      return of.same_as;
    }
    std::optional<int64_t> operator()(const KeptComparison& of) {
      return of.same_as;
    }
    std::optional<int64_t> operator()(const KeptDifference& of) {
      return of.against;
    }
  };
  return std::visit(Origin(), payload);
}

Payload WithoutOrigin(Payload payload) {
  if (auto* measured = std::get_if<KeptDifference>(&payload)) {
    measured->against = 0;
  } else {
    SetSameAs(std::nullopt, &payload);
  }
  return payload;
}

Payload WithOrigin(Payload payload, std::optional<int64_t> origin) {
  if (auto* measured = std::get_if<KeptDifference>(&payload)) {
    TTRACE_CHECK(origin.has_value(), "what was measured has a base");
    measured->against = *origin;
  } else {
    SetSameAs(origin, &payload);
  }
  return payload;
}

}  // namespace ttrace
