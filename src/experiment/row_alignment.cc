#include "src/experiment/row_alignment.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/compare/compare_summaries.h"
#include "src/experiment/iteration_range.h"

namespace ttrace {
namespace {

// The batch dimension of a root input, or -1.
int BatchDim(const TensorPieces& pieces) {
  const Record& first = pieces.pieces.front();
  return first.rows() ? first.rows()->dim : -1;
}

// Row r of the batch dimension as a sequence of values.
Result<std::vector<std::vector<double>>> RowsOf(const TensorPieces& pieces,
                                                int batch_dim) {
  const Shape shape = pieces.global_shape();
  std::vector<std::vector<double>> rows;
  const auto dim = static_cast<size_t>(batch_dim);
  for (int64_t r = 0; r < shape[dim]; ++r) {
    Shape begin(shape.size(), 0);
    Shape size = shape;
    begin[dim] = r;
    size[dim] = 1;
    TTRACE_ASSIGN_OR_RETURN(auto row, ReadBox(pieces, begin, size));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

CompareOptions RowAlignment::OptionsFor(int iteration) const {
  CompareOptions options;
  const auto found = by_iteration.find(iteration);
  if (found != by_iteration.end()) options.rows = &found->second;
  return options;
}

Result<RowAlignment> FindRows(const Side& reference, const Side& candidate,
                              const std::optional<IterationRange>& iterations) {
  RowAlignment out;
  // Iteration -> per row of each side, all root inputs one after the other.
  std::map<int, std::pair<std::vector<std::vector<double>>,
                          std::vector<std::vector<double>>>>
      keys;
  for (const auto& [id, pieces] : candidate.real()) {
    if (!id.fqn.empty() || id.role != Role::kInput) continue;
    if (iterations && !iterations->contains(id.iteration)) continue;
    const TensorPieces* other = reference.FindSameValue("real", id);
    const int dim = BatchDim(pieces);
    if (other == nullptr || dim < 0 || BatchDim(*other) != dim ||
        other->global_shape() != pieces.global_shape() ||
        !other->MayBeWhole() || !pieces.MayBeWhole() || HasSummaries(*other) ||
        HasSummaries(pieces)) {
      continue;
    }
    TTRACE_ASSIGN_OR_RETURN(auto ref_rows, RowsOf(*other, dim));
    TTRACE_ASSIGN_OR_RETURN(auto cand_rows, RowsOf(pieces, dim));
    auto& [ref_keys, cand_keys] = keys[id.iteration];
    ref_keys.resize(std::max(ref_keys.size(), ref_rows.size()));
    cand_keys.resize(std::max(cand_keys.size(), cand_rows.size()));
    for (size_t r = 0; r < ref_rows.size(); ++r) {
      ref_keys[r].insert(ref_keys[r].end(), ref_rows[r].begin(),
                         ref_rows[r].end());
      cand_keys[r].insert(cand_keys[r].end(), cand_rows[r].begin(),
                          cand_rows[r].end());
    }
  }
  for (const auto& [iteration, sides] : keys) {
    const auto& [ref_keys, cand_keys] = sides;
    if (ref_keys == cand_keys) continue;
    // Equal rows are handed out in order: their occurrence number is the key.
    std::map<std::vector<double>, std::vector<int64_t>> places;
    for (size_t r = ref_keys.size(); r-- > 0;) {
      places[ref_keys[r]].push_back(static_cast<int64_t>(r));
    }
    RowMap map;
    std::vector<int64_t> foreign;
    for (size_t r = 0; r < cand_keys.size(); ++r) {
      const auto found = places.find(cand_keys[r]);
      if (found == places.end() || found->second.empty()) {
        foreign.push_back(static_cast<int64_t>(r));
        continue;
      }
      map.to_reference.push_back(found->second.back());
      found->second.pop_back();
    }
    if (foreign.empty()) {
      out.by_iteration[iteration] = std::move(map);
    } else {
      out.foreign[iteration] = std::move(foreign);
    }
  }
  return out;
}

}  // namespace ttrace
