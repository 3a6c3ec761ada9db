#include "src/compare/row_map.h"

#include <string>
#include <utility>
#include <vector>

namespace ttrace {

namespace {

Status CheckPermutation(const RowMap& map) {
  const auto rows = static_cast<int64_t>(map.to_reference.size());
  std::vector<bool> seen(map.to_reference.size(), false);
  for (const int64_t row : map.to_reference) {
    if (row < 0 || row >= rows || seen[static_cast<size_t>(row)]) {
      return Invalid("row map is not a permutation: row " +
                     std::to_string(row));
    }
    seen[static_cast<size_t>(row)] = true;
  }
  return Done{};
}

// Of a dimension with `each` consecutive indices a row.
void Map(const RowMap& map, int64_t each, DimLayout* dim) {
  std::vector<Segment> mapped;
  for (const Segment& segment : dim->segments) {
    for (int64_t i = 0; i < segment.size; ++i) {
      const int64_t from = segment.begin + i;
      const int64_t to =
          map.to_reference[static_cast<size_t>(from / each)] * each +
          from % each;
      if (!mapped.empty() && mapped.back().begin + mapped.back().size == to) {
        ++mapped.back().size;
      } else {
        mapped.push_back({to, 1});
      }
    }
  }
  dim->segments = std::move(mapped);
}

}  // namespace

Status MapRows(const RowMap& map, int dim, Layout* layout) {
  DimLayout& batch = layout->dims[static_cast<size_t>(dim)];
  const auto rows = static_cast<int64_t>(map.to_reference.size());
  if (rows == 0 || batch.global_size % rows != 0) {
    return Invalid("row map of " + std::to_string(rows) +
                   " rows for a batch of " + std::to_string(batch.global_size));
  }
  TTRACE_RETURN_IF_ERROR(CheckPermutation(map));
  Map(map, batch.global_size / rows, &batch);
  return Done{};
}

Status MapTokens(const RowMap& map, DimLayout* tokens) {
  const auto rows = static_cast<int64_t>(map.to_reference.size());
  if (rows == 0 || tokens->global_size % rows != 0) {
    return Invalid("row map of " + std::to_string(rows) + " rows for " +
                   std::to_string(tokens->global_size) + " tokens");
  }
  TTRACE_RETURN_IF_ERROR(CheckPermutation(map));
  Map(map, tokens->global_size / rows, tokens);
  return Done{};
}

}  // namespace ttrace
