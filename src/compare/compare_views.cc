#include "src/compare/compare_views.h"

#include <vector>

#include "src/compare/compare_kernel.h"

namespace ttrace {

// The kernel takes two axes; outer ones are walked here.
void CompareViews(const Tile& tile, const BlockView& ref, const BlockView& cand,
                  double element_scale, ErrorSums* sums) {
  const std::vector<Axis>& axes = tile.axes;
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
    int64_t logical = tile.logical_begin;
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

}  // namespace ttrace
