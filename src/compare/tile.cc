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

class TileWalk {
 public:
  TileWalk(const Layout& a, const Layout& b, const Layout* within,
           int64_t tile_elements,
           const std::function<Status(const Tile&)>& visit)
      : a_strides_(Strides(a.local_shape())),
        b_strides_(Strides(b.local_shape())),
        logical_strides_(Strides(a.global_shape())),
        tile_elements_(tile_elements),
        visit_(visit) {
    for (size_t d = 0; d < a.dims.size(); ++d) {
      runs_.push_back(Intersect(a.dims[d], b.dims[d]));
      if (within != nullptr) runs_[d] = Clip(runs_[d], within->dims[d]);
      if (runs_.back().empty()) disjoint_ = true;
    }
    chosen_.resize(runs_.size());
  }

  Status Run() { return disjoint_ ? Status(Done{}) : Boxes(0); }

 private:
  // All combinations of one run per dimension.
  Status Boxes(size_t d) {
    if (d == runs_.size()) return Cut(JoinedBox());
    for (const SharedRun& run : runs_[d]) {
      if (run.size == 0) continue;
      chosen_[d] = run;
      TTRACE_RETURN_IF_ERROR(Boxes(d + 1));
    }
    return Done{};
  }

  // The chosen box with as few axes as possible.
  Tile JoinedBox() const {
    Tile box;
    for (size_t d = 0; d < chosen_.size(); ++d) {
      const SharedRun& run = chosen_[d];
      box.a_begin += run.a_local * a_strides_[d];
      box.b_begin += run.b_local * b_strides_[d];
      box.logical_begin += run.begin * logical_strides_[d];
      if (run.size == 1) continue;
      const Axis axis = {run.size, a_strides_[d], b_strides_[d],
                         logical_strides_[d]};
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

  // Whole inner axes as far as they fit, then part of one, then single steps.
  Status Cut(const Tile& box) {
    std::vector<int64_t> steps(box.axes.size(), 1);
    int64_t room = tile_elements_;
    for (size_t d = box.axes.size(); d-- > 0 && room > 1;) {
      steps[d] = std::min(box.axes[d].size, room);
      room /= steps[d];
    }
    return Pieces(box, steps, 0, box);
  }

  Status Pieces(const Tile& box, const std::vector<int64_t>& steps, size_t d,
                const Tile& tile) {
    if (d == box.axes.size()) return visit_(tile);
    const Axis& axis = box.axes[d];
    const bool rows = d + 1 == box.axes.size();
    for (int64_t i = 0; i < axis.size;) {
      Tile part = tile;
      part.a_begin += i * axis.a_stride;
      part.b_begin += i * axis.b_stride;
      part.logical_begin += i * axis.logical_stride;
      int64_t step = steps[d];
      if (rows && step < axis.size && step >= 2 * kCompareBlock) {
        // Sums then do not depend on the tiles' size.
        step -= (part.logical_begin + step) % kCompareBlock;
      }
      step = std::min(step, axis.size - i);
      part.axes[d].size = step;
      TTRACE_RETURN_IF_ERROR(Pieces(box, steps, d + 1, part));
      i += step;
    }
    return Done{};
  }

  std::vector<std::vector<SharedRun>> runs_;
  std::vector<SharedRun> chosen_;
  Shape a_strides_;
  Shape b_strides_;
  Shape logical_strides_;
  int64_t tile_elements_;
  const std::function<Status(const Tile&)>& visit_;
  bool disjoint_ = false;
};

// Cheap and common: shards of one dimension rarely meet.
bool MayMeet(const DimLayout& a, const DimLayout& b) {
  if (a.segments.size() != 1 || b.segments.size() != 1) return true;
  const Segment& x = a.segments.front();
  const Segment& y = b.segments.front();
  return x.begin < y.begin + y.size && y.begin < x.begin + x.size;
}

}  // namespace

Status ForEachTile(const Layout& a, const Layout& b, int64_t tile_elements,
                   const std::function<Status(const Tile&)>& visit,
                   const Layout* within) {
  for (size_t d = 0; d < a.dims.size(); ++d) {
    if (!MayMeet(a.dims[d], b.dims[d])) return Done{};
    if (within == nullptr) continue;
    if (!MayMeet(a.dims[d], within->dims[d]) ||
        !MayMeet(b.dims[d], within->dims[d])) {
      return Done{};
    }
  }
  return TileWalk(a, b, within, tile_elements, visit).Run();
}

}  // namespace ttrace
