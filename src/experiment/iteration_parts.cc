#include "src/experiment/iteration_parts.h"

#include <algorithm>

namespace ttrace {

IterationParts::IterationParts(
    const std::map<TensorId, TensorPieces>& tensors) {
  struct Seen {
    std::vector<int64_t> forward, reduced;
  };
  std::map<std::pair<int, int>, Seen> seen;
  for (const auto& [id, pieces] : tensors) {
    const bool reduced = id.role == Role::kGradReduced;
    const bool forward =
        (id.role == Role::kInput || id.role == Role::kOutput) &&
        id.pass == Pass::kForward;
    if (!reduced && !forward) continue;
    for (const Record& record : pieces.pieces) {
      Seen& of_rank = seen[{record.rank(), id.iteration}];
      (reduced ? of_rank.reduced : of_rank.forward)
          .push_back(record.sequence());
    }
  }
  for (auto& [where, of_rank] : seen) {
    if (of_rank.reduced.empty()) continue;
    auto& [forward, reduced] = of_rank;
    std::sort(forward.begin(), forward.end());
    std::sort(reduced.begin(), reduced.end());
    int64_t complete = reduced.front();
    while (true) {
      const auto next =
          std::upper_bound(forward.begin(), forward.end(), complete);
      if (next == forward.end()) break;
      begins_[where].push_back(*next);
      const auto again =
          std::upper_bound(reduced.begin(), reduced.end(), *next);
      if (again == reduced.end()) break;
      complete = *again;
    }
  }
}

int IterationParts::Of(const Record& record, int iteration) const {
  const auto found = begins_.find({record.rank(), iteration});
  if (found == begins_.end()) return 0;
  const auto& begins = found->second;
  return static_cast<int>(
      std::upper_bound(begins.begin(), begins.end(), record.sequence()) -
      begins.begin());
}

}  // namespace ttrace
