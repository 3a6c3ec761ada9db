#include "src/compare/cells/cell_grid.h"

#include <algorithm>

namespace ttrace {
namespace {

// Rows of a cell are no shorter than a line of the kernel, where the tensor's
// are not.
constexpr int64_t kShortestRow = 16;

}  // namespace

int64_t CellGrid::cells() const {
  int64_t n = 1;
  for (const int64_t p : parts) n *= p;
  return n;
}

CellGrid GridOf(const Shape& shape) {
  CellGrid grid{shape, std::vector<int64_t>(shape.size(), 1)};
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  const int64_t most = std::min(kMostCells, elements / kCellElements);
  // The dimension that is cut least is halved, the first of several.
  for (int64_t cells = 1; cells * 2 <= most; cells *= 2) {
    size_t best = shape.size();
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t shortest = d + 1 == shape.size() ? kShortestRow : 1;
      if (shape[d] / (2 * grid.parts[d]) < shortest) continue;
      if (best == shape.size() || grid.parts[d] < grid.parts[best]) best = d;
    }
    if (best == shape.size()) break;
    grid.parts[best] *= 2;
  }
  return grid;
}

}  // namespace ttrace
