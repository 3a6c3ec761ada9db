#include "src/compare/row_map.h"

#include <string>
#include <utility>
#include <vector>

namespace ttrace {

Status MapRows(const RowMap& map, int dim, Layout* layout) {
  DimLayout& batch = layout->dims[static_cast<size_t>(dim)];
  const auto rows = static_cast<int64_t>(map.to_reference.size());
  if (rows != batch.global_size) {
    return Error(ErrorCode::kInvalidArgument,
                 "row map of " + std::to_string(rows) +
                     " rows for a batch of " +
                     std::to_string(batch.global_size));
  }
  std::vector<bool> seen(map.to_reference.size(), false);
  for (const int64_t row : map.to_reference) {
    if (row < 0 || row >= rows || seen[static_cast<size_t>(row)]) {
      return Error(ErrorCode::kInvalidArgument,
                   "row map is not a permutation: row " + std::to_string(row));
    }
    seen[static_cast<size_t>(row)] = true;
  }
  std::vector<Segment> mapped;
  for (const Segment& segment : batch.segments) {
    for (int64_t i = 0; i < segment.size; ++i) {
      const int64_t row =
          map.to_reference[static_cast<size_t>(segment.begin + i)];
      if (!mapped.empty() && mapped.back().begin + mapped.back().size == row) {
        ++mapped.back().size;
      } else {
        mapped.push_back({row, 1});
      }
    }
  }
  batch.segments = std::move(mapped);
  return Done{};
}

}  // namespace ttrace
