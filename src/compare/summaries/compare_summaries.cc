#include "src/compare/summaries/compare_summaries.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "src/compare/compared_piece.h"
#include "src/compare/held_values.h"
#include "src/compare/record_cache.h"
#include "src/compare/recorded_layout.h"

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Elements that are read at a time where there are values.
constexpr int64_t kReadTile = 1 << 20;

// A whole side, in one.
struct WholeSummary {
  DType dtype = DType::kF32;
  int64_t count = 0;
  int64_t nonfinite = 0;
  double sum_sq = 0;
  double max_abs = 0;
  // Of all values before they are scaled, by the factor that they count by.
  // Also of sums: the same terms, at the same places, make the same sum.
  std::map<double, TensorDigest> digests;
  bool has_sums = false;
  std::optional<Sketch> sketch;
};

// What was kept instead of values, read once.
using Kept = std::map<Record, TensorSummary>;

Status ReadKept(const std::vector<const Instance*>& side, Kept* out) {
  for (const Instance* instance : side) {
    for (const Term& term : instance->terms) {
      const Record& record = term.record;
      if (instance->trace->GivesValues(record) || out->contains(record)) {
        continue;
      }
      TTRACE_ASSIGN_OR_RETURN(TensorSummary summary,
                              ReadSummary(*instance->trace, record));
      out->emplace(record, std::move(summary));
    }
  }
  return Done{};
}

// As many buckets as every sketch can be folded to; 0: a piece has none.
size_t FewestBuckets(const Kept& kept) {
  size_t fewest = kMaxSketchBuckets;
  for (const auto& [record, summary] : kept) {
    if (!summary.sketch) return 0;
    fewest = std::min(fewest, summary.sketch->buckets().size());
  }
  return fewest;
}

Result<TensorSummary> SummaryOf(const Trace& trace, const Record& record,
                                const Kept& kept, size_t buckets) {
  if (trace.GivesValues(record)) return SummarizeStored(trace, record, buckets);
  TensorSummary summary = kept.at(record);
  if (buckets == 0) {
    summary.sketch.reset();
  } else if (summary.sketch) {
    TTRACE_ASSIGN_OR_RETURN(summary.sketch, summary.sketch->Fold(buckets));
  }
  return summary;
}

// Adds an instance, which holds elements that no other one holds.
Status Add(const Instance& instance, const Kept& kept, size_t buckets,
           WholeSummary* out) {
  const bool one = instance.terms.size() == 1;
  for (const Term& term : instance.terms) {
    TTRACE_ASSIGN_OR_RETURN(
        const TensorSummary summary,
        SummaryOf(*instance.trace, term.record, kept, buckets));
    const double weight = term.weight;
    out->dtype = term.record.dtype();
    if (&term == &instance.terms.front()) out->count += summary.count;
    out->nonfinite += summary.nonfinite;
    out->sum_sq += weight * weight * summary.sum_sq;
    out->max_abs = std::fmax(out->max_abs, std::fabs(weight) * summary.max_abs);
    out->has_sums = out->has_sums || !one;
    out->digests[weight].Merge(summary.digest);
    if (!summary.sketch) continue;
    if (!out->sketch) out->sketch.emplace(summary.sketch->seed(), buckets);
    TTRACE_RETURN_IF_ERROR(out->sketch->Merge(*summary.sketch, weight));
  }
  return Done{};
}

Result<WholeSummary> Together(const std::vector<const Instance*>& side,
                              const Kept& kept, size_t buckets) {
  WholeSummary out;
  for (const Instance* instance : side) {
    TTRACE_RETURN_IF_ERROR(Add(*instance, kept, buckets, &out));
  }
  if (out.has_sums) {
    out.sum_sq = 0;
    if (out.sketch) {
      for (const double bucket : out.sketch->buckets()) {
        out.sum_sq += bucket * bucket;
      }
    }
  }
  return out;
}

// Whether the same elements are there, if they are not terms.
bool AreReordered(const WholeSummary& r, const WholeSummary& c) {
  if (r.has_sums || c.has_sums) return false;
  if (r.digests.size() != 1 || c.digests.size() != 1) return false;
  const auto& [r_scale, r_digest] = *r.digests.begin();
  const auto& [c_scale, c_digest] = *c.digests.begin();
  return r_scale == c_scale && r_digest.count == c_digest.count &&
         r_digest.multiset == c_digest.multiset;
}

// By sketches. REQUIRES: both sides have one, and are finite.
Status Estimate(const WholeSummary& r, const WholeSummary& c, ErrorStats* out) {
  TTRACE_ASSIGN_OR_RETURN(const SketchEstimate distance,
                          EstimateDistance(*r.sketch, std::sqrt(r.sum_sq),
                                           *c.sketch, std::sqrt(c.sum_sq)));
  for (size_t i = 0; i < r.sketch->buckets().size(); ++i) {
    out->max_abs_err =
        std::fmax(out->max_abs_err,
                  std::fabs(r.sketch->buckets()[i] - c.sketch->buckets()[i]));
  }
  out->sum_sq_err = distance.value * distance.value;
  out->sq_err_below = out->sum_sq_err - distance.low * distance.low;
  out->sq_err_above = distance.high * distance.high - out->sum_sq_err;
  out->sum_err_ref = (c.sum_sq - r.sum_sq - out->sum_sq_err) / 2;
  return Done{};
}

}  // namespace

Result<TensorSummary> SummarizeStored(const Trace& trace, const Record& record,
                                      size_t buckets) {
  const int64_t itemsize = Info(record.dtype()).itemsize;
  std::optional<TensorSummary> out;
  int64_t at = 0;
  std::vector<std::byte> bytes;
  for (const Layout& part : CutLayout(record.layout(), kReadTile)) {
    const int64_t n = part.local_count();
    bytes.resize(static_cast<size_t>(n * itemsize));
    TTRACE_RETURN_IF_ERROR(trace.Read(record, at * itemsize, bytes));
    at += n;
    const std::vector<int64_t> strides = RowMajorStrides(part.local_shape());
    TTRACE_ASSIGN_OR_RETURN(
        TensorSummary summary,
        Summarize({bytes.data(), record.dtype(), strides, part}, buckets));
    if (!out) {
      out = std::move(summary);
      continue;
    }
    TTRACE_RETURN_IF_ERROR(out->Merge(summary));
  }
  return out.value_or(TensorSummary{});
}

std::string_view ToString(Fidelity fidelity) {
  switch (fidelity) {
    case Fidelity::kValues:
      return "values";
    case Fidelity::kSketch:
      return "sketch";
    case Fidelity::kDigest:
      return "digest";
  }
  return "?";
}

std::optional<Fidelity> ParseFidelity(std::string_view text) {
  for (const Fidelity fidelity :
       {Fidelity::kValues, Fidelity::kSketch, Fidelity::kDigest}) {
    if (ToString(fidelity) == text) return fidelity;
  }
  return std::nullopt;
}

bool HasSummaries(const TensorPieces& pieces) {
  return std::any_of(pieces.pieces.begin(), pieces.pieces.end(),
                     [](const Record& piece) { return piece.summary(); });
}

bool HasSummaries(const Instance& instance) {
  return std::any_of(instance.terms.begin(), instance.terms.end(),
                     [](const Term& term) { return term.record.summary(); });
}

Result<TensorSummary> ReadSummary(const Trace& trace, const Record& record) {
  if (record.summary()) {
    TTRACE_ASSIGN_OR_RETURN(const auto bytes, trace.ReadInstead(record));
    TTRACE_ASSIGN_OR_RETURN(TensorSummary summary, DecodeSummary(bytes));
    const Status placed =
        summary.Place(RecordedLayout(trace, record), record.dtype());
    if (placed.ok()) return summary;
    return NamedPiece(placed, record).error();
  }
  if (!record.compared_with().empty()) {
    TTRACE_ASSIGN_OR_RETURN(ComparedPiece piece,
                            ReadComparedPiece(trace, record));
    if (piece.summary) return *std::move(piece.summary);
  }
  // Whoever asks for its values is told why there are none.
  return trace.Read(record, 0, {}).error();
}

Result<SummaryComparison> CompareSummaries(
    const std::vector<const Instance*>& refs,
    const std::vector<const Instance*>& cands) {
  Kept kept;
  TTRACE_RETURN_IF_ERROR(ReadKept(refs, &kept));
  TTRACE_RETURN_IF_ERROR(ReadKept(cands, &kept));
  const size_t buckets = FewestBuckets(kept);
  TTRACE_ASSIGN_OR_RETURN(const WholeSummary r, Together(refs, kept, buckets));
  TTRACE_ASSIGN_OR_RETURN(const WholeSummary c, Together(cands, kept, buckets));
  SummaryComparison out;
  ErrorStats& stats = out.stats;
  stats.count = r.count;
  stats.nonfinite_ref = r.nonfinite;
  stats.nonfinite_cand = c.nonfinite;
  stats.sum_sq_ref = r.sum_sq;
  stats.max_abs_ref = r.max_abs;
  if (r.dtype == c.dtype && r.digests == c.digests) return out;
  stats.mismatched = 1;  // at least
  stats.nonfinite_differ = std::llabs(r.nonfinite - c.nonfinite);
  out.reordered = r.dtype == c.dtype && AreReordered(r, c);
  if (r.sketch && c.sketch && r.nonfinite == 0 && c.nonfinite == 0) {
    out.fidelity = Fidelity::kSketch;
    TTRACE_RETURN_IF_ERROR(Estimate(r, c, &stats));
    return out;
  }
  // They differ; how far is not known.
  stats.sum_sq_err = stats.sq_err_below = r.sum_sq > 0 ? r.sum_sq : 1;
  stats.sq_err_above = kInfinity;
  return out;
}

}  // namespace ttrace
