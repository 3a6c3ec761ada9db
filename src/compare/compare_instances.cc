#include "src/compare/compare_instances.h"

#include <algorithm>
#include <vector>

#include "src/compare/compare_kernel.h"
#include "src/compare/tile.h"

namespace ttrace {
namespace {

// The kernel takes two axes; outer ones are walked here.
void CompareViews(const std::vector<Axis>& axes, int64_t logical_begin,
                  const BlockView& ref, const BlockView& cand,
                  double element_scale, ErrorSums* sums) {
  const size_t n = axes.size();
  const Axis row_axis = n >= 2 ? axes[n - 2] : Axis{};
  CompareExtent extent;
  extent.rows = n >= 2 ? row_axis.size : 1;
  extent.cols = axes[n - 1].size;
  extent.logical_stride = static_cast<uint64_t>(row_axis.logical_stride);
  extent.element_scale = element_scale;
  CompareOperand r{nullptr, ref.dtype, n >= 2 ? ref.strides[n - 2] : 0,
                   ref.scale};
  CompareOperand c{nullptr, cand.dtype, n >= 2 ? cand.strides[n - 2] : 0,
                   cand.scale};
  const int64_t ref_size = Info(ref.dtype).itemsize;
  const int64_t cand_size = Info(cand.dtype).itemsize;
  const size_t outer = n >= 2 ? n - 2 : 0;
  std::vector<int64_t> at(outer, 0);
  for (;;) {
    int64_t ref_at = 0;
    int64_t cand_at = 0;
    int64_t logical = logical_begin;
    for (size_t d = 0; d < outer; ++d) {
      ref_at += at[d] * ref.strides[d];
      cand_at += at[d] * cand.strides[d];
      logical += at[d] * axes[d].logical_stride;
    }
    r.data = ref.data + ref_at * ref_size;
    c.data = cand.data + cand_at * cand_size;
    extent.logical_begin = static_cast<uint64_t>(logical);
    CompareRows(r, c, extent, sums);
    size_t d = outer;
    while (d > 0 && ++at[d - 1] == axes[d - 1].size) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace

InstanceComparer::InstanceComparer(int64_t tile_elements, double element_scale)
    : tile_elements_(std::max<int64_t>(1, tile_elements)),
      element_scale_(element_scale) {}

Status InstanceComparer::Compare(const PlacedInstance& ref,
                                 const PlacedInstance& cand, ErrorSums* sums,
                                 const Layout* within) {
  const bool same = &ref.instance == &cand.instance;
  return ForEachTile(
      ref.layout, cand.layout, tile_elements_,
      [&](const Tile& tile) -> Status {
        TTRACE_ASSIGN_OR_RETURN(const BlockView ref_view,
                                ref_reader_.Read(ref.instance, BlockInA(tile)));
        if (same) {
          CompareViews(tile.axes, tile.logical_begin, ref_view, ref_view,
                       element_scale_, sums);
          return Done{};
        }
        TTRACE_ASSIGN_OR_RETURN(
            const BlockView cand_view,
            cand_reader_.Read(cand.instance, BlockInB(tile)));
        CompareViews(tile.axes, tile.logical_begin, ref_view, cand_view,
                     element_scale_, sums);
        return Done{};
      },
      within);
}

}  // namespace ttrace
