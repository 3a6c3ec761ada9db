#include "src/compare/cells/compare_cells.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "src/compare/cells/cell_comparer.h"
#include "src/compare/instances.h"
#include "src/compare/overlap_index.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/compare/worst_copy.h"
#include "src/region/segment_slice.h"

namespace ttrace {
namespace {

Error NotStored(const TensorPieces& rerun, const std::string& why) {
  return Error(
      ErrorCode::kIncomparable,
      DescribeTensor(rerun) + ": its values were not kept, and " + why);
}

// Whether `rerun` was measured against `run`; or against the run's replay, of
// which it is as good a measure.
bool StandsFor(const Trace& trace, const Record& rerun, const Record& run) {
  const int64_t wanted = rerun.measured()->against;
  if (wanted == run.sequence()) return true;
  const std::optional<Record> base = trace.records().Find(rerun.rank(), wanted);
  return base && base->leg() == kReplay && run.leg() == kReal;
}

Result<CellTable> ReadCells(const Trace& trace, const Record& record) {
  TTRACE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                          trace.ReadInstead(record));
  // One cell: all of the piece, in a trace of summaries.
  const bool coarse = static_cast<int64_t>(bytes.size()) == EncodedCellBytes(1);
  return DecodeCells(
      bytes, coarse ? 1 : GridOf(record.layout().local_shape()).cells());
}

Result<CellTable> ReadTable(const TensorPieces& rerun, const Record& record,
                            const Record& run, double element_scale) {
  if (!StandsFor(*rerun.trace, record, run)) {
    return NotStored(rerun,
                     "they were compared with another tensor than that "
                     "of the leg they repeat");
  }
  TTRACE_ASSIGN_OR_RETURN(CellTable table, ReadCells(*rerun.trace, record));
  // Whoever measured it added its squares up in another order.
  if (std::fabs(table.element_scale - element_scale) > 0.01 * element_scale) {
    return NotStored(rerun,
                     "errors of elements were measured by another scale");
  }
  return table;
}

// Cells of one dimension that reach into a region, and with how many of their
// indices.
struct Affects {
  int64_t cell = 0;
  int64_t inside = 0;
  int64_t size = 0;
};

std::vector<Affects> ReachesOf(const CellGrid& grid, size_t d,
                               const DimLayout& piece,
                               const DimLayout& region) {
  std::vector<Affects> out;
  for (int64_t k = 0; k < grid.parts[d]; ++k) {
    const int64_t begin = grid.Begin(d, k);
    const int64_t size = grid.Begin(d, k + 1) - begin;
    DimLayout cell;
    cell.global_size = piece.global_size;
    AppendSlice(piece.segments, {begin, size}, cell.segments);
    int64_t inside = 0;
    for (const SharedRun& run : Intersect(cell, region)) inside += run.size;
    if (inside > 0) out.push_back({k, inside, size});
  }
  return out;
}

uint32_t ShareOf(uint32_t count, double share) {
  return static_cast<uint32_t>(std::ceil(count * share));
}

void AddShare(const CellSums& cell, int64_t inside, int64_t size,
              ErrorStats* out) {
  const double share =
      inside == size ? 1
                     : static_cast<double>(inside) / static_cast<double>(size);
  ErrorStats stats;
  stats.count = inside;
  stats.mismatched = ShareOf(cell.mismatched, share);
  stats.nonfinite_ref = ShareOf(cell.nonfinite_ref, share);
  stats.nonfinite_cand = ShareOf(cell.nonfinite_cand, share);
  stats.nonfinite_differ = ShareOf(cell.nonfinite_differ, share);
  stats.sum_sq_err = cell.err_err * share;
  stats.sum_err_ref = cell.err_ref * share;
  stats.sum_sq_ref = cell.ref_ref * share;
  stats.sum_sq_elem = cell.elem_elem * share;
  stats.max_abs_err = cell.max_err;
  stats.max_abs_ref = cell.max_ref;
  stats.max_elem = cell.max_elem;
  stats.max_block_sq_err = cell.max_block;
  out->Merge(stats);
}

ErrorStats Within(const CellTable& table, const Layout& piece,
                  const Layout& region) {
  CellGrid grid = GridOf(piece.local_shape());
  if (table.cells.size() == 1)
    std::fill(grid.parts.begin(), grid.parts.end(), 1);
  std::vector<std::vector<Affects>> reaches;
  for (size_t d = 0; d < piece.dims.size(); ++d) {
    reaches.push_back(ReachesOf(grid, d, piece.dims[d], region.dims[d]));
    if (reaches.back().empty()) return {};
  }
  ErrorStats out;
  std::vector<size_t> at(reaches.size(), 0);
  for (;;) {
    int64_t cell = 0;
    int64_t inside = 1;
    int64_t size = 1;
    for (size_t d = 0; d < at.size(); ++d) {
      const Affects& reach = reaches[d][at[d]];
      cell = cell * grid.parts[d] + reach.cell;
      inside *= reach.inside;
      size *= reach.size;
    }
    AddShare(table.cells[static_cast<size_t>(cell)], inside, size, &out);
    size_t d = at.size();
    while (d > 0 && ++at[d - 1] == reaches[d - 1].size()) at[--d] = 0;
    if (d == 0) return out;
  }
}

}  // namespace

double ElementScaleOf(double sum_of_squares, int64_t count) {
  if (count == 0 || !std::isfinite(sum_of_squares)) return 0;
  int exponent = 0;
  const double rms = std::sqrt(sum_of_squares / static_cast<double>(count));
  const double fraction = std::frexp(rms, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, 8)), exponent - 8);
}

std::optional<Record> CounterpartOf(const TensorPieces& run,
                                    const Record& rerun) {
  for (const Record& piece : run.pieces) {
    if (piece.rank() == rerun.rank() &&
        piece.micro_batch() == rerun.micro_batch() &&
        piece.dtype() == rerun.dtype() && piece.layout() == rerun.layout()) {
      return piece;
    }
  }
  return std::nullopt;
}

Result<std::optional<double>> ElementScaleMeasured(const TensorPieces& run,
                                                   const TensorPieces& rerun) {
  using Scale = std::optional<double>;
  const Record piece = rerun.pieces.front();
  if (!piece.measured()) return Scale();
  const std::optional<Record> own = CounterpartOf(run, piece);
  const std::optional<Record> base =
      rerun.trace->records().Find(piece.rank(), piece.measured()->against);
  // The same bytes: a replay may differ.
  if (!own || !base || base->extent() != own->extent()) return Scale();
  TTRACE_ASSIGN_OR_RETURN(const CellTable table,
                          ReadCells(*rerun.trace, piece));
  return table.element_scale > 0 ? Scale(table.element_scale) : Scale();
}

Result<ErrorStats> DifferenceOf(const Trace& trace, const Record& record) {
  TTRACE_ASSIGN_OR_RETURN(const CellTable table, ReadCells(trace, record));
  return Within(table, record.layout(), record.layout());
}

Result<std::optional<CellTable>> CompareAsOneCell(const Trace& of_run,
                                                  const Record& run,
                                                  const Trace& of_rerun,
                                                  const Record& rerun) {
  if (IsTerm(rerun) || rerun.routed() || rerun.scale().value() != 1) {
    return std::optional<CellTable>();
  }
  ErrorStats stats;
  if (rerun.measured()) {
    TTRACE_ASSIGN_OR_RETURN(stats, DifferenceOf(of_rerun, rerun));
  } else {
    TensorPieces a;
    a.trace = &of_run;
    a.pieces.push_back(run);
    TensorPieces b;
    b.trace = &of_rerun;
    b.pieces.push_back(rerun);
    TTRACE_ASSIGN_OR_RETURN(const TensorComparison compared,
                            CompareTensor(a, b));
    stats = compared.total;
  }
  CellSums all;
  all.err_err = stats.sum_sq_err;
  all.err_ref = stats.sum_err_ref;
  all.ref_ref = stats.sum_sq_ref;
  all.max_err = stats.max_abs_err;
  all.max_ref = stats.max_abs_ref;
  all.max_block = stats.max_block_sq_err;
  const auto count = [](int64_t n) {
    return static_cast<uint32_t>(
        std::min<int64_t>(n, std::numeric_limits<uint32_t>::max()));
  };
  all.mismatched = count(stats.mismatched);
  all.nonfinite_ref = count(stats.nonfinite_ref);
  all.nonfinite_cand = count(stats.nonfinite_cand);
  all.nonfinite_differ = count(stats.nonfinite_differ);
  return std::optional<CellTable>({0, {all}});
}

PlannedCells::PlannedCells(const TensorPieces& run, const TensorPieces& rerun,
                           const std::vector<Layout>& regions,
                           double element_scale, Sweep* sweep)
    : run_(run),
      rerun_(rerun),
      regions_(regions),
      element_scale_(element_scale),
      sweep_(*sweep) {
  status_ = Plan(sweep);
}

// False if a piece has no counterpart, or is no value of its own.
bool PlannedCells::PairUp() {
  for (const InstanceGroup& group : groups_) {
    Place& place = places_.emplace_back();
    place.layout = &group.layout;
    for (const Instance& instance : group.instances) {
      const Term& term = instance.terms.front();
      if (instance.terms.size() != 1 || term.weight != 1) return false;
      const Record& record = term.record;
      const std::optional<Record> other = CounterpartOf(run_, record);
      if (!other || record.routed() || other->scale().value() != 1 ||
          (!record.measured() &&
           !CellComparer::Takes(record.dtype(), record.layout()))) {
        return false;
      }
      place.copies.push_back({*other, record, std::nullopt});
    }
  }
  return true;
}

Status PlannedCells::Plan(Sweep* sweep) {
  const bool measured =
      std::any_of(rerun_.pieces.begin(), rerun_.pieces.end(),
                  [](const Record& piece) { return piece.measured(); });
  TTRACE_ASSIGN_OR_RETURN(groups_, GroupInstances(rerun_, {}));
  const bool paired = PairUp();
  if (!paired || (!measured && (HasSummaries(run_) || HasSummaries(rerun_)))) {
    places_.clear();
    if (!measured) return Done{};
    return NotStored(rerun_, "the leg they repeat has no such piece");
  }
  for (Place& place : places_) {
    for (Copy& copy : place.copies) {
      if (copy.rerun.measured()) continue;
      copy.comparison = sweep->CompareCells(
          *run_.trace, copy.run, *rerun_.trace, copy.rerun, element_scale_);
    }
  }
  return Done{};
}

Result<std::optional<std::vector<ErrorStats>>> PlannedCells::Finish() {
  using Nothing = std::optional<std::vector<ErrorStats>>;
  TTRACE_RETURN_IF_ERROR(status_);
  if (!applies()) return Nothing();
  std::vector<const Layout*> places;
  std::vector<std::vector<CellTable>> tables;  // by place
  for (const Place& place : places_) {
    places.push_back(place.layout);
    std::vector<CellTable>& copies = tables.emplace_back();
    for (const Copy& copy : place.copies) {
      TTRACE_ASSIGN_OR_RETURN(
          CellTable table,
          copy.comparison
              ? sweep_.CellsOf(*copy.comparison)
              : ReadTable(rerun_, copy.rerun, copy.run, element_scale_));
      copies.push_back(std::move(table));
    }
  }
  const OverlapIndex index(places);
  std::vector<ErrorStats> out;
  out.reserve(regions_.size());
  for (const Layout& region : regions_) {
    ErrorStats total;
    for (const size_t place : index.Near(region)) {
      WorstCopy worst;
      for (const CellTable& table : tables[place]) {
        worst.Add(Within(table, *places[place], region));
      }
      total.Merge(worst.stats());
    }
    out.push_back(total);
  }
  return Nothing(std::move(out));
}

PlannedRerun::PlannedRerun(const TensorPieces& run, const TensorPieces& rerun,
                           const std::vector<Layout>& regions,
                           double element_scale, Sweep* sweep)
    : cells_(run, rerun, regions, element_scale, sweep) {
  if (cells_.applies()) return;
  CompareOptions options;
  options.element_scale = element_scale;
  within_.emplace(run, rerun, regions, options, sweep);
}

Result<std::vector<ErrorStats>> PlannedRerun::Finish() {
  if (within_) return within_->Finish();
  TTRACE_ASSIGN_OR_RETURN(auto cells, cells_.Finish());
  return *std::move(cells);
}

Result<std::optional<std::vector<ErrorStats>>> CompareCellsWithin(
    const TensorPieces& run, const TensorPieces& rerun,
    const std::vector<Layout>& regions, double element_scale) {
  return CompareAlone<PlannedCells>(nullptr, run, rerun, regions,
                                    element_scale);
}

Result<std::vector<ErrorStats>> CompareRerunWithin(
    const TensorPieces& run, const TensorPieces& rerun,
    const std::vector<Layout>& regions, double element_scale) {
  return CompareAlone<PlannedRerun>(nullptr, run, rerun, regions,
                                    element_scale);
}

}  // namespace ttrace
