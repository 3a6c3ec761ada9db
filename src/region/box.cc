// Boxes inside local tensors. Their numbers may come from a file: nothing is
// added up before it is known to be representable.

#include "ttrace/box.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "src/region/segment_slice.h"

namespace ttrace {
namespace {

std::string ToText(const BoxDim& dim) {
  return std::to_string(dim.size) + " from " + std::to_string(dim.begin) +
         " of " + std::to_string(dim.of);
}

// volumes[d]: elements of the dimensions from d on.
Result<std::vector<int64_t>> Volumes(const Shape& shape) {
  std::vector<int64_t> volumes(shape.size() + 1, 1);
  for (size_t d = shape.size(); d-- > 0;) {
    const int64_t size = shape[d];
    if (size < 0) return Invalid("a negative size: " + std::to_string(size));
    if (size != 0 &&
        volumes[d + 1] > std::numeric_limits<int64_t>::max() / size) {
      return Invalid("the element count overflows");
    }
    volumes[d] = volumes[d + 1] * size;
  }
  return volumes;
}

}  // namespace

Result<Layout> CutToBox(const Layout& layout, const Box& box) {
  if (box.size() != layout.dims.size()) {
    return Invalid("a box of " + std::to_string(box.size()) +
                   " dimensions in a tensor of " +
                   std::to_string(layout.dims.size()));
  }
  Layout cut;
  for (size_t d = 0; d < box.size(); ++d) {
    const BoxDim& part = box[d];
    const DimLayout& whole = layout.dims[d];
    const int64_t held = whole.local_size();
    if (part.of != held) {
      return Invalid("the box has " + ToText(part) + " in dimension " +
                     std::to_string(d) + ", of which the placements give " +
                     std::to_string(held));
    }
    if (part.begin < 0 || part.size < 0 || part.size > held ||
        part.begin > held - part.size) {
      return Invalid("the box has " + ToText(part) + " in dimension " +
                     std::to_string(d));
    }
    DimLayout& left = cut.dims.emplace_back();
    left.global_size = whole.global_size;
    AppendSlice(whole.segments, {part.begin, part.size}, left.segments);
  }
  return cut;
}

Result<Layout> ResolvePiece(const DeviceMesh& mesh,
                            const Coordinate& coordinate,
                            const PlacementMap& placements,
                            const Shape& global_shape,
                            const std::optional<BatchRows>& rows,
                            const std::optional<Box>& box) {
  TTRACE_ASSIGN_OR_RETURN(
      Layout layout,
      ResolveLayout(mesh, coordinate, placements, global_shape, rows));
  if (IsRagged(placements) != box.has_value()) {
    return Invalid(box ? "a box without a RaggedShard"
                       : "a RaggedShard without a box");
  }
  if (!box) return layout;
  TTRACE_ASSIGN_OR_RETURN(Layout cut, CutToBox(layout, *box));
  // Rows are counted by the batch, as everywhere: no placement cuts them, and
  // no box.
  if (rows) {
    const auto dim = static_cast<size_t>(rows->dim);
    if (cut.dims[dim] != layout.dims[dim]) {
      return Invalid("the box cuts the batch dimension");
    }
  }
  return cut;
}

Result<std::vector<FlatBox>> BoxesOfRange(const Shape& shape, int64_t begin,
                                          int64_t end) {
  TTRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> volumes, Volumes(shape));
  const int64_t count = volumes.front();
  if (begin < 0 || end < begin || end > count) {
    return Invalid("elements [" + std::to_string(begin) + ", " +
                   std::to_string(end) + ") of a tensor of " +
                   std::to_string(count));
  }
  std::vector<FlatBox> boxes;
  for (int64_t at = begin; at < end;) {
    // The outermost dimension of which whole slices begin here: no longer run
    // is a box, and what a shorter one left would need as many more.
    size_t d = 0;
    while (d < shape.size() &&
           (at % volumes[d + 1] != 0 || volumes[d + 1] > end - at)) {
      ++d;
    }
    FlatBox next{at, {}};
    int64_t rest = at;
    for (size_t i = 0; i < shape.size(); ++i) {
      const int64_t index = rest / volumes[i + 1];
      rest %= volumes[i + 1];
      if (i < d) {
        next.box.push_back({index, 1, shape[i]});
      } else if (i == d) {
        const int64_t size =
            std::min(shape[i] - index, (end - at) / volumes[i + 1]);
        next.box.push_back({index, size, shape[i]});
      } else {
        next.box.push_back({0, shape[i], shape[i]});
      }
    }
    // d == shape.size(): a scalar, of one element.
    at += d < shape.size() ? next.box[d].size * volumes[d + 1] : 1;
    boxes.push_back(std::move(next));
  }
  return boxes;
}

}  // namespace ttrace
