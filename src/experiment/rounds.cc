#include "src/experiment/rounds.h"

#include <algorithm>
#include <utility>

#include "src/experiment/execution_order.h"

namespace ttrace {
namespace {

bool IsOfPass(int phase) { return phase == 1 || phase == 3; }
bool IsBackward(int phase) { return phase == 3; }

}  // namespace

Rounds::Rounds(const std::map<TensorId, TensorPieces>& tensors) {
  std::map<Run, std::vector<std::pair<int64_t, int>>> runs;
  for (const auto& [id, pieces] : tensors) {
    const int phase = PhaseOf(id);
    if (!IsOfPass(phase)) continue;
    for (const Record& record : pieces.pieces) {
      if (record.micro_batch() < 0) continue;
      runs[{record.rank(), id.iteration, IsBackward(phase)}].emplace_back(
          record.sequence(), record.micro_batch());
    }
  }
  for (auto& [run, seen] : runs) {
    std::sort(seen.begin(), seen.end());
    const int first = seen.front().second;
    int last = -1;
    for (const auto& [sequence, micro_batch] : seen) {
      if (micro_batch == first && last != first) {
        begins_[run].push_back(sequence);
      }
      last = micro_batch;
    }
  }
}

int Rounds::Of(const Record& record) const {
  const int phase = PhaseOf(record.id());
  if (!IsOfPass(phase) || record.micro_batch() < 0) return 0;
  const auto run =
      begins_.find({record.rank(), record.id().iteration, IsBackward(phase)});
  if (run == begins_.end()) return 0;
  const auto& begins = run->second;
  const auto after =
      std::upper_bound(begins.begin(), begins.end(), record.sequence());
  return std::max(0, static_cast<int>(after - begins.begin()) - 1);
}

}  // namespace ttrace
