#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/align/catalog.h"
#include "src/base/format.h"
#include "src/cli/inspect.h"
#include "src/cli/inspected_leg.h"
#include "src/compare/cells/compare_cells.h"
#include "src/compare/compared_piece.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/compare/summaries/tensor_summary.h"
#include "src/experiment/source_lines.h"
#include "src/localize/source_of_tensor.h"
#include "src/numeric/widen.h"
#include "src/region/box_words.h"
#include "src/report/page.h"

namespace ttrace {
namespace {

struct PieceStats {
  int64_t nan = 0;
  int64_t inf = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double sum_of_squares = 0;
  int64_t finite = 0;
  std::vector<double> first;

  void Add(double value) {
    if (std::isnan(value)) {
      ++nan;
    } else if (std::isinf(value)) {
      ++inf;
    } else {
      ++finite;
      min = std::min(min, value);
      max = std::max(max, value);
      sum += value;
      sum_of_squares += value * value;
    }
  }
};

// Reads a piece tile by tile: a tensor may be larger than memory.
Result<PieceStats> ReadPiece(const Trace& trace, const Record& record,
                             int values) {
  const auto itemsize = static_cast<int64_t>(Info(record.dtype()).itemsize);
  constexpr int64_t kTileBytes = 1 << 20;
  std::vector<std::byte> tile;
  PieceStats stats;
  for (int64_t offset = 0; offset < record.extent().bytes;) {
    const int64_t bytes = std::min(kTileBytes, record.extent().bytes - offset);
    tile.resize(static_cast<size_t>(bytes));
    TTRACE_RETURN_IF_ERROR(trace.Read(record, offset, tile));
    for (int64_t at = 0; at < bytes; at += itemsize) {
      const double value = WidenElement(record.dtype(), tile.data() + at);
      if (stats.first.size() < static_cast<size_t>(values)) {
        stats.first.push_back(value);
      }
      stats.Add(value);
    }
    offset += bytes;
  }
  return stats;
}

std::string ShapeText(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string StatsText(const PieceStats& stats) {
  std::string text = "no finite value";
  if (stats.finite > 0) {
    text = fmt::format("min {:.6g}, max {:.6g}, mean {:.6g}, norm {:.6g}",
                       stats.min, stats.max,
                       stats.sum / static_cast<double>(stats.finite),
                       std::sqrt(stats.sum_of_squares));
  }
  if (stats.nan > 0) text += ", NaN: " + FormatCount(stats.nan);
  if (stats.inf > 0) text += ", Inf: " + FormatCount(stats.inf);
  return text;
}

// What is known of a piece by its summary.
std::string SummaryText(const TensorSummary& summary) {
  std::vector<std::string> kept = {"a digest"};
  if (summary.sketch) {
    kept.push_back(fmt::format(
        "a sketch of {} numbers",
        FormatCount(static_cast<int64_t>(summary.sketch->buckets().size()))));
  }
  if (summary.sample) {
    kept.push_back(fmt::format(
        "a sample of {} elements",
        FormatCount(static_cast<int64_t>(summary.sample->places.size()))));
  }
  std::string text = fmt::format(
      "kept instead: {}; norm {:.6g}, largest {:.6g}", fmt::join(kept, ", "),
      std::sqrt(summary.sum_sq), summary.max_abs);
  if (summary.nonfinite > 0) {
    text += ", NaN or Inf: " + FormatCount(summary.nonfinite);
  }
  return text;
}

bool Matches(const TensorQuery& query, const TensorId& id) {
  if (query.iteration >= 0 && id.iteration != query.iteration) return false;
  const char* pattern = query.pattern.c_str();
  return fnmatch(pattern, id.fqn.c_str(), 0) == 0 ||
         fnmatch(pattern, ToString(id).c_str(), 0) == 0;
}

Status AddTensor(const TensorId& id, const TensorPieces& pieces, int values,
                 const SourceLines& sources, Page& page) {
  const Record& any = pieces.pieces.front();
  page.Section("TENSOR");
  page.Text(ToString(id), Tone::kStrong);
  const SourcePlace source = SourceOf(sources, id);
  if (!source.file.empty()) page.Verbatim(source.words);
  const std::string placements = ToString(any.placements());
  page.Text(fmt::format("{} {}  {}", Info(any.dtype()).torch_name,
                        ShapeText(any.layout().global_shape()),
                        placements.empty() ? "replicated" : placements));
  if (any.scale() != Scale{}) {
    page.Text(fmt::format("recorded values are to be multiplied by {}/{}",
                          any.scale().numerator, any.scale().denominator));
  }
  for (const Record& record : pieces.pieces) {
    std::string where = fmt::format("rank {}", record.rank());
    if (record.micro_batch() >= 0) {
      where += fmt::format(", micro-batch {}", record.micro_batch());
    }
    page.Text(
        fmt::format("{}: {} at {}", where, ShapeText(record.local_shape()),
                    BoxWords(record.layout())),
        Tone::kPlain, 2);
    if (!record.compared_with().empty()) {
      TTRACE_ASSIGN_OR_RETURN(const ComparedPiece compared,
                              ReadComparedPiece(*pieces.trace, record));
      const ErrorStats difference = compared.legs.front().sums.Stats();
      page.Text(
          fmt::format("its values were not kept; relative to leg {} of the "
                      "reference that it was recorded with they differ by "
                      "{:.6g}, at most {:.6g}",
                      record.compared_with().front().name(),
                      difference.rel_err(), difference.max_abs_err),
          Tone::kPlain, 4);
      if (compared.summary) {
        page.Text(SummaryText(*compared.summary), Tone::kPlain, 4);
      }
      continue;
    }
    if (record.summary()) {
      TTRACE_ASSIGN_OR_RETURN(const TensorSummary summary,
                              ReadSummary(*pieces.trace, record));
      page.Text("its values were not kept; " + SummaryText(summary),
                Tone::kPlain, 4);
      continue;
    }
    if (record.measured()) {
      TTRACE_ASSIGN_OR_RETURN(const ErrorStats difference,
                              DifferenceOf(*pieces.trace, record));
      page.Text(fmt::format("its values were not kept; relative to the leg "
                            "that it perturbs they differ by {:.6g}, at most "
                            "{:.6g}",
                            difference.rel_err(), difference.max_abs_err),
                Tone::kPlain, 4);
      continue;
    }
    TTRACE_ASSIGN_OR_RETURN(const PieceStats stats,
                            ReadPiece(*pieces.trace, record, values));
    page.Text(StatsText(stats), Tone::kPlain, 4);
    if (!stats.first.empty()) {
      page.Text(fmt::format("{:.6g}{}", fmt::join(stats.first, " "),
                            static_cast<size_t>(record.layout().local_count()) >
                                    stats.first.size()
                                ? " ..."
                                : ""),
                Tone::kPlain, 4);
    }
  }
  return Done{};
}

}  // namespace

Result<std::string> DescribeTensors(std::shared_ptr<const Trace> trace,
                                    const TensorQuery& query,
                                    const TerminalOptions& terminal) {
  const Leg leg(query.leg);
  if (!HoldsLeg(*trace, leg)) {
    TTRACE_ASSIGN_OR_RETURN(trace, OpenLegOf(*trace, leg));
  }
  const SourceLines sources = SourceLines::Read(*trace);
  const Catalog catalog(std::move(trace));
  Page page(terminal.width, terminal.color);
  int shown = 0;
  int64_t more = 0;
  for (const auto& [id, pieces] : catalog.tensors(leg)) {
    if (!Matches(query, id)) continue;
    if (shown == query.limit) {
      ++more;
      continue;
    }
    ++shown;
    TTRACE_RETURN_IF_ERROR(AddTensor(id, pieces, query.values, sources, page));
  }
  if (shown == 0) {
    return Error(ErrorCode::kNotFound,
                 "no tensor matches '" + Printable(query.pattern) +
                     "' in leg " + Printable(query.leg) +
                     "; a pattern like \"*layers.0*\" matches more");
  }
  if (more > 0) {
    page.Section("MORE");
    page.Text(FormatCount(more) + " tensors match too; --limit shows them");
  }
  return page.Take();
}

}  // namespace ttrace
