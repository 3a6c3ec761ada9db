// ReadBox: values instead of statistics.

#include <limits>
#include <string>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/instances.h"
#include "src/compare/tile.h"
#include "src/compare/tile_reader.h"
#include "src/numeric/widen.h"

namespace ttrace {
namespace {

// Values that are given room whatever the trace holds of them.
constexpr int64_t kAlwaysRoom = int64_t{1} << 20;

// The box as if it were somebody's local tensor.
Result<Layout> BoxLayout(const TensorPieces& pieces, const Shape& begin,
                         const Shape& size) {
  const Shape global = pieces.global_shape();
  if (begin.size() != global.size() || size.size() != global.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 DescribeTensor(pieces) + " has " +
                     std::to_string(global.size()) +
                     " dimensions, the box another number");
  }
  Layout layout;
  for (size_t d = 0; d < global.size(); ++d) {
    if (begin[d] < 0 || size[d] < 0 || begin[d] > global[d] ||
        size[d] > global[d] - begin[d]) {
      return Error(ErrorCode::kInvalidArgument,
                   DescribeTensor(pieces) + ": box lies outside dimension " +
                       std::to_string(d) + " of size " +
                       std::to_string(global[d]));
    }
    DimLayout dim;
    dim.global_size = global[d];
    if (size[d] > 0) dim.segments.push_back({begin[d], size[d]});
    layout.dims.push_back(dim);
  }
  return layout;
}

}  // namespace

Result<std::vector<double>> ReadBox(const TensorPieces& pieces,
                                    const Shape& begin, const Shape& size,
                                    const CompareOptions& options) {
  TTRACE_ASSIGN_OR_RETURN(const Layout box, BoxLayout(pieces, begin, size));
  TTRACE_ASSIGN_OR_RETURN(const std::vector<InstanceGroup> groups,
                          GroupInstances(pieces, options));
  const int64_t count = box.local_count();
  if (count > kAlwaysRoom && count > pieces.elements_held()) {
    return Error(ErrorCode::kIncomparable,
                 DescribeTensor(pieces) + ": of " + std::to_string(count) +
                     " declared elements the trace holds at most " +
                     std::to_string(pieces.elements_held()));
  }
  std::vector<double> out(static_cast<size_t>(count),
                          std::numeric_limits<double>::quiet_NaN());
  TileReader reader;
  for (const InstanceGroup& group : groups) {
    const Instance& first = group.instances.front();
    TTRACE_RETURN_IF_ERROR(ForEachTile(
        box, group.layout, CompareOptions{}.tile_elements,
        [&](const Tile& tile) -> Status {
          const LocalBlock block = BlockInB(tile);
          TTRACE_ASSIGN_OR_RETURN(const BlockView view,
                                  reader.Read(first, block));
          const int64_t itemsize = Info(view.dtype).itemsize;
          const auto cols = static_cast<size_t>(block.sizes.back());
          ForEachRow(block.sizes, view.strides, BlockInA(tile).strides,
                     [&](int64_t from, int64_t to) {
                       double* at = out.data() + tile.a_begin + to;
                       Widen(view.dtype, view.data + from * itemsize, cols, at);
                       for (size_t i = 0; i < cols; ++i) at[i] *= view.scale;
                     });
          return Done{};
        }));
  }
  return out;
}

}  // namespace ttrace
