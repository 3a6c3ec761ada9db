#include "src/compare/cells/cell_comparer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/base/check.h"
#include "src/compare/compare_exact.h"
#include "src/compare/compare_kernel.h"

namespace ttrace {
namespace {

// Fewer elements are cheaper to keep than to describe.
constexpr int64_t kFewestElements = 16 * kCellElements;

bool HoldsAll(const DimLayout& dim) {
  return dim.segments.size() == 1 && dim.segments.front().begin == 0 &&
         dim.segments.front().size == dim.global_size;
}

float LargestOf(const float* lanes) {
  return *std::max_element(lanes, lanes + kCellLanes);
}

}  // namespace

bool CellComparer::Takes(DType dtype, const Layout& layout) {
  return HasCellKernel(dtype) && !layout.dims.empty() &&
         layout.local_count() >= kFewestElements;
}

CellComparer::CellComparer(DType dtype, const Layout& layout,
                           double element_scale)
    : dtype_(dtype), element_scale_(element_scale) {
  TTRACE_CHECK(Takes(dtype, layout), "a tensor that has no cells");
  const CellGrid grid = GridOf(layout.local_shape());
  table_.element_scale = element_scale;
  table_.cells.resize(static_cast<size_t>(grid.cells()));
  slot_of_cell_.assign(table_.cells.size(), -1);

  int64_t logical_stride = 1;  // of dimension d, in the global tensor
  int64_t cell_stride = 1;
  int64_t inner = 1;  // elements of the whole dimensions joined so far
  for (size_t d = grid.shape.size(); d-- > 0;) {
    const DimLayout& from = layout.dims[d];
    if (d > 0 && dims_.empty() && grid.parts[d] == 1 && HoldsAll(from)) {
      // Its rows are parts of the rows of the dimension before it.
      inner *= grid.shape[d];
      logical_stride *= from.global_size;
      continue;
    }
    Dim dim;
    dim.size = grid.shape[d] * inner;
    dim.parts = grid.parts[d];
    for (int64_t k = 0; k <= dim.parts; ++k) {
      dim.cell_begins.push_back(grid.Begin(d, k) * inner);
    }
    for (const Segment& s : from.segments) {
      dim.segments.push_back({s.begin * inner, s.size * inner});
    }
    dim.logical_stride = logical_stride / inner;
    dim.cell_stride = cell_stride;
    inner = 1;
    logical_stride *= from.global_size;
    cell_stride *= dim.parts;
    dims_.insert(dims_.begin(), std::move(dim));
  }
  NextRow();
}

void CellComparer::Dim::Step() {
  if (++index == size) {
    index = cell = in_segment = 0;
    segment = 0;
    return;
  }
  if (index == cell_begins[static_cast<size_t>(cell) + 1]) ++cell;
  if (++in_segment == segments[segment].size) {
    ++segment;
    in_segment = 0;
  }
}

// Where the row at the outer dimensions' current place lies.
void CellComparer::NextRow() {
  row_cell_ = row_logical_ = 0;
  for (size_t d = 0; d + 1 < dims_.size(); ++d) {
    const Dim& dim = dims_[d];
    row_cell_ += dim.cell * dim.cell_stride;
    row_logical_ +=
        (dim.segments[dim.segment].begin + dim.in_segment) * dim.logical_stride;
  }
}

uint32_t CellComparer::SlotOf(int64_t cell) {
  int32_t& slot = slot_of_cell_[static_cast<size_t>(cell)];
  if (slot < 0) {
    slot = static_cast<int32_t>(slot_cells_.size());
    slot_cells_.push_back(cell);
  }
  return static_cast<uint32_t>(slot);
}

// The block that is open ends with the last run; one of no elements stands for
// it if that was in the tile before.
void CellComparer::EndBlock() {
  if (runs_.empty()) {
    if (block_cells_.empty()) return;
    runs_.push_back({SlotOf(block_cells_.back()), 0, true});
    run_cells_.push_back(block_cells_.back());
    return;
  }
  runs_.back().ends_block = true;
}

// Plans the rest of the current row, or as much of it as `left` elements are.
void CellComparer::PlanRow(int64_t* left) {
  Dim& row = dims_.back();
  while (*left > 0 && row.index < row.size) {
    const Segment& segment = row.segments[row.segment];
    const int64_t logical = row_logical_ + segment.begin + row.in_segment;
    if (expected_ >= 0 && logical != expected_) EndBlock();
    const int64_t cell_end = row.cell_begins[static_cast<size_t>(row.cell) + 1];
    const int64_t n =
        std::min({*left, cell_end - row.index, segment.size - row.in_segment,
                  kCompareBlock - logical % kCompareBlock});
    const int64_t cell = row_cell_ + row.cell * row.cell_stride;
    const bool ends_block = (logical + n) % kCompareBlock == 0;
    runs_.push_back({SlotOf(cell), static_cast<uint32_t>(n), ends_block});
    run_cells_.push_back(cell);
    expected_ = ends_block ? -1 : logical + n;
    *left -= n;
    row.index += n;
    row.in_segment += n;
    if (row.index == cell_end) ++row.cell;
    if (row.in_segment == segment.size) {
      ++row.segment;
      row.in_segment = 0;
    }
  }
}

void CellComparer::PlanRuns(int64_t count) {
  runs_.clear();
  run_cells_.clear();
  for (const int64_t cell : slot_cells_) {
    slot_of_cell_[static_cast<size_t>(cell)] = -1;
  }
  slot_cells_.clear();
  while (count > 0) {
    PlanRow(&count);
    Dim& row = dims_.back();
    if (row.index < row.size) break;
    row.index = row.cell = row.in_segment = 0;
    row.segment = 0;
    size_t d = dims_.size() - 1;
    while (d-- > 0) {
      dims_[d].Step();
      if (dims_[d].index != 0) break;
    }
    NextRow();
  }
}

bool CellComparer::Trustworthy(const CellLanes& lanes) const {
  const auto safe = [](double sum, const float* maxima) {
    if (sum >= kSmallestSafeSum) return std::isfinite(sum);
    return sum == 0 && LargestOf(maxima) == 0;
  };
  return safe(SumOfLanes(lanes.err_err), lanes.max_err) &&
         safe(SumOfLanes(lanes.ref_ref), lanes.max_ref) &&
         std::isfinite(SumOfLanes(lanes.elem_elem));
}

void CellComparer::Add(const std::byte* ref, const std::byte* cand,
                       int64_t count) {
  const int64_t itemsize = Info(dtype_).itemsize;
  while (count > 0) {
    const int64_t n = std::min(count, kCellTile);
    AddTile(ref, cand, n);
    ref += n * itemsize;
    cand += n * itemsize;
    count -= n;
  }
}

void CellComparer::AddTile(const std::byte* ref, const std::byte* cand,
                           int64_t count) {
  PlanRuns(count);
  lanes_.resize(slot_cells_.size());
  std::memset(static_cast<void*>(lanes_.data()), 0,
              lanes_.size() * sizeof(CellLanes));
  std::vector<double> blocks(static_cast<size_t>(
      std::count_if(runs_.begin(), runs_.end(),
                    [](const CellRun& run) { return run.ends_block; })));
  alignas(64) float block[kCellLanes];
  std::memcpy(block, block_, sizeof(block));
  CompareRuns({ref, cand, dtype_}, runs_, static_cast<float>(element_scale_),
              lanes_.data(), block, blocks.data());
  if (!std::all_of(lanes_.begin(), lanes_.end(),
                   [&](const CellLanes& l) { return Trustworthy(l); })) {
    AddExactly(ref, cand);
    return;
  }
  std::memcpy(block_, block, sizeof(block));
  for (size_t slot = 0; slot < lanes_.size(); ++slot) {
    const CellLanes& lanes = lanes_[slot];
    CellSums& cell = table_.cells[static_cast<size_t>(slot_cells_[slot])];
    cell.err_err += SumOfLanes(lanes.err_err);
    cell.err_ref += SumOfLanes(lanes.err_ref);
    cell.ref_ref += SumOfLanes(lanes.ref_ref);
    cell.elem_elem += SumOfLanes(lanes.elem_elem);
    const auto raise = [](double* to, const float* by) {
      *to = std::max(*to, static_cast<double>(LargestOf(by)));
    };
    raise(&cell.max_err, lanes.max_err);
    raise(&cell.max_ref, lanes.max_ref);
    raise(&cell.max_elem, lanes.max_elem);
    cell.mismatched += static_cast<uint32_t>(lanes.mismatched);
  }
  CloseBlocks(blocks);
}

// Shows each of a block's cells what the block has shown. `sums`: of the blocks
// that end in this tile, without what was carried.
void CellComparer::CloseBlocks(const std::vector<double>& sums) {
  size_t next = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (block_cells_.empty() || block_cells_.back() != run_cells_[i]) {
      block_cells_.push_back(run_cells_[i]);
    }
    if (!runs_[i].ends_block) continue;
    const double sum = sums[next++] + block_carry_;
    block_carry_ = 0;
    for (const int64_t cell : block_cells_) {
      double& largest = table_.cells[static_cast<size_t>(cell)].max_block;
      largest = std::max(largest, sum);
    }
    block_cells_.clear();
  }
}

// The tile again, in double: it holds NaN, Inf, or values whose squares leave
// the range of fp32.
void CellComparer::AddExactly(const std::byte* ref, const std::byte* cand) {
  const int64_t itemsize = Info(dtype_).itemsize;
  double open = SumOfLanes(block_);
  std::memset(block_, 0, sizeof(block_));
  std::vector<double> blocks;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const CellRun& run = runs_[i];
    ErrorSums sums;
    if (run.count > 0) {
      CompareBlockExact({ref, dtype_, 0, 1}, {cand, dtype_, 0, 1}, run.count,
                        element_scale_, &sums);
    }
    const ErrorStats stats = sums.Stats();
    CellSums& cell = table_.cells[static_cast<size_t>(run_cells_[i])];
    cell.err_err += stats.sum_sq_err;
    cell.err_ref += stats.sum_err_ref;
    cell.ref_ref += stats.sum_sq_ref;
    cell.elem_elem += stats.sum_sq_elem;
    cell.max_err = std::max(cell.max_err, stats.max_abs_err);
    cell.max_ref = std::max(cell.max_ref, stats.max_abs_ref);
    cell.max_elem = std::max(cell.max_elem, stats.max_elem);
    cell.mismatched += static_cast<uint32_t>(stats.mismatched);
    cell.nonfinite_ref += static_cast<uint32_t>(stats.nonfinite_ref);
    cell.nonfinite_cand += static_cast<uint32_t>(stats.nonfinite_cand);
    cell.nonfinite_differ += static_cast<uint32_t>(stats.nonfinite_differ);
    open += stats.sum_sq_err;
    if (run.ends_block) {
      blocks.push_back(open);
      open = 0;
    }
    ref += run.count * itemsize;
    cand += run.count * itemsize;
  }
  const double carry = open;
  CloseBlocks(blocks);
  block_carry_ += carry;
}

CellTable CellComparer::Take() {
  if (!block_cells_.empty()) {
    const double sum = SumOfLanes(block_) + block_carry_;
    for (const int64_t cell : block_cells_) {
      double& largest = table_.cells[static_cast<size_t>(cell)].max_block;
      largest = std::max(largest, sum);
    }
  }
  return std::move(table_);
}

}  // namespace ttrace
