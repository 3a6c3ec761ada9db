#include "src/compare/tile.h"

#include <algorithm>

#include "src/compare/compare_kernel.h"

namespace ttrace {
namespace {

// Row-major strides of a shape.
Shape Strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * shape[d];
  }
  return strides;
}

// The parts of `runs`, which are sorted, that `within` holds.
std::vector<SharedRun> Clip(const std::vector<SharedRun>& runs,
                            const DimLayout& within) {
  std::vector<Segment> segments = within.segments;
  std::sort(
      segments.begin(), segments.end(),
      [](const Segment& x, const Segment& y) { return x.begin < y.begin; });
  std::vector<SharedRun> out;
  size_t next = 0;
  for (const SharedRun& run : runs) {
    const int64_t run_end = run.begin + run.size;
    while (next < segments.size() &&
           segments[next].begin + segments[next].size <= run.begin) {
      ++next;
    }
    for (size_t i = next; i < segments.size() && segments[i].begin < run_end;
         ++i) {
      const int64_t begin = std::max(run.begin, segments[i].begin);
      const int64_t end =
          std::min(run_end, segments[i].begin + segments[i].size);
      if (begin >= end) continue;
      const int64_t skipped = begin - run.begin;
      out.push_back(
          {run.a_local + skipped, run.b_local + skipped, begin, end - begin});
    }
  }
  return out;
}

// Cheap and common: shards of one dimension rarely meet.
bool MayMeet(const DimLayout& a, const DimLayout& b) {
  if (a.segments.size() != 1 || b.segments.size() != 1) return true;
  const Segment& x = a.segments.front();
  const Segment& y = b.segments.front();
  return x.begin < y.begin + y.size && y.begin < x.begin + x.size;
}

bool MayMeet(const Layout& a, const Layout& b, const Layout* within) {
  for (size_t d = 0; d < a.dims.size(); ++d) {
    if (!MayMeet(a.dims[d], b.dims[d])) return false;
    if (within == nullptr) continue;
    if (!MayMeet(a.dims[d], within->dims[d]) ||
        !MayMeet(b.dims[d], within->dims[d])) {
      return false;
    }
  }
  return true;
}

// The chosen box with as few axes as possible.
Tile JoinedBox(const std::vector<std::vector<SharedRun>>& runs,
               const std::vector<size_t>& chosen, const Shape& a_strides,
               const Shape& b_strides, const Shape& logical_strides) {
  Tile box;
  for (size_t d = 0; d < chosen.size(); ++d) {
    const SharedRun& run = runs[d][chosen[d]];
    box.a_begin += run.a_local * a_strides[d];
    box.b_begin += run.b_local * b_strides[d];
    box.logical_begin += run.begin * logical_strides[d];
    if (run.size == 1) continue;
    const Axis axis = {run.size, a_strides[d], b_strides[d],
                       logical_strides[d]};
    if (!box.axes.empty()) {
      Axis& outer = box.axes.back();
      if (outer.a_stride == axis.size * axis.a_stride &&
          outer.b_stride == axis.size * axis.b_stride &&
          outer.logical_stride == axis.size * axis.logical_stride) {
        outer = {outer.size * axis.size, axis.a_stride, axis.b_stride,
                 axis.logical_stride};
        continue;
      }
    }
    box.axes.push_back(axis);
  }
  const bool unit = !box.axes.empty() && box.axes.back().a_stride == 1 &&
                    box.axes.back().b_stride == 1 &&
                    box.axes.back().logical_stride == 1;
  if (!unit) box.axes.push_back({});  // a column: rows of one element
  return box;
}

// A tile of fewer elements costs more than what it reads.
constexpr int64_t kFewestOfTile = 4096;
// From its first element to its last, in tiles: what others compare there is to
// be read together with it.
constexpr int64_t kSpanOfTile = 4;

}  // namespace

TileCursor::TileCursor(const Layout& a, const Layout& b, int64_t tile_elements,
                       const Layout* within)
    : tile_elements_(tile_elements) {
  if (!MayMeet(a, b, within)) return;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    std::vector<SharedRun>& runs = runs_.emplace_back();
    runs = Intersect(a.dims[d], b.dims[d]);
    if (within != nullptr) runs = Clip(runs, within->dims[d]);
    std::erase_if(runs, [](const SharedRun& run) { return run.size == 0; });
    if (runs.empty()) return;
  }
  a_strides_ = Strides(a.local_shape());
  b_strides_ = Strides(b.local_shape());
  logical_strides_ = Strides(a.global_shape());
  SplitRows();
  chosen_.assign(runs_.size(), 0);
  done_ = false;
  BeginBox();
}

// Where a later dimension is held in several runs, each makes a box, of all
// rows if they are not split: the whole tensor for the first run, then for the
// second. No sum can tell: rows of such boxes are not joined.
void TileCursor::SplitRows() {
  if (runs_.empty()) return;
  int64_t in_row = 1;
  int64_t boxes = 1;
  for (size_t d = 1; d < runs_.size(); ++d) {
    int64_t held = 0;
    for (const SharedRun& run : runs_[d]) held += run.size;
    in_row *= held;
    boxes *= static_cast<int64_t>(runs_[d].size());
  }
  if (boxes == 1) return;
  const int64_t rows = std::max<int64_t>(
      {1, tile_elements_ / in_row,
       std::min(kFewestOfTile, tile_elements_) * boxes / in_row});
  std::vector<SharedRun> split;
  for (const SharedRun& run : runs_.front()) {
    for (int64_t i = 0; i < run.size; i += rows) {
      split.push_back({run.a_local + i, run.b_local + i, run.begin + i,
                       std::min(rows, run.size - i)});
    }
  }
  runs_.front() = std::move(split);
}

void TileCursor::BeginBox() {
  box_ = JoinedBox(runs_, chosen_, a_strides_, b_strides_, logical_strides_);
  walks_.assign(box_.axes.size(), {});
  // Whole inner axes as far as they fit, then part of one, then single steps.
  // Rows that lie apart are cut earlier, though not into crumbs.
  int64_t room = tile_elements_;
  int64_t inner = 1;
  for (size_t d = box_.axes.size(); d-- > 0 && room > 1;) {
    const Axis& axis = box_.axes[d];
    int64_t step = std::min(axis.size, room);
    if (d + 1 < box_.axes.size()) {
      step = std::min(
          step, std::max<int64_t>(
                    {1, kSpanOfTile * tile_elements_ / axis.logical_stride,
                     std::min(kFewestOfTile, tile_elements_) / inner}));
    }
    walks_[d].step = step;
    inner *= step;
    room = step < axis.size ? 1 : room / step;
  }
  Place();
}

// All combinations of one run per dimension.
bool TileCursor::NextBox() {
  size_t d = chosen_.size();
  while (d > 0 && ++chosen_[d - 1] == runs_[d - 1].size()) chosen_[--d] = 0;
  return d > 0;
}

void TileCursor::Place() {
  tile_.axes = box_.axes;
  tile_.a_begin = box_.a_begin;
  tile_.b_begin = box_.b_begin;
  tile_.logical_begin = box_.logical_begin;
  for (size_t d = 0; d < box_.axes.size(); ++d) {
    const Axis& axis = box_.axes[d];
    tile_.a_begin += walks_[d].at * axis.a_stride;
    tile_.b_begin += walks_[d].at * axis.b_stride;
    tile_.logical_begin += walks_[d].at * axis.logical_stride;
    tile_.axes[d].size = std::min(walks_[d].step, axis.size - walks_[d].at);
  }
  Axis& row = tile_.axes.back();
  const int64_t step = walks_.back().step;
  if (step < box_.axes.back().size && step >= 2 * kCompareBlock) {
    // Sums then do not depend on the tiles' size.
    const int64_t cut = step - (tile_.logical_begin + step) % kCompareBlock;
    row.size = std::min(cut, box_.axes.back().size - walks_.back().at);
  }
}

void TileCursor::Next() {
  for (size_t d = box_.axes.size(); d-- > 0;) {
    walks_[d].at += tile_.axes[d].size;
    if (walks_[d].at < box_.axes[d].size) return Place();
    walks_[d].at = 0;
  }
  if (!NextBox()) {
    done_ = true;
    return;
  }
  BeginBox();
}

Status ForEachTile(const Layout& a, const Layout& b, int64_t tile_elements,
                   const std::function<Status(const Tile&)>& visit,
                   const Layout* within) {
  for (TileCursor cursor(a, b, tile_elements, within); !cursor.done();
       cursor.Next()) {
    TTRACE_RETURN_IF_ERROR(visit(cursor.tile()));
  }
  return Done{};
}

}  // namespace ttrace
