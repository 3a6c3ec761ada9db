#include "src/experiment/common_clock.h"

#include <algorithm>

namespace ttrace {
int StageOf(const Trace& trace, int rank) {
  const int pp = trace.mesh().Find("pp");
  return pp < 0 ? 0 : trace.coordinate(rank)[static_cast<size_t>(pp)];
}

CommonClock::CommonClock(const std::map<TensorId, TensorPieces>& tensors) {
  if (tensors.empty()) return;
  const Trace& trace = *tensors.begin()->second.trace;
  std::map<int, int> first_of_stage;
  for (const auto& [id, pieces] : tensors) {
    for (const Record* record : pieces.pieces) {
      int& first =
          first_of_stage.try_emplace(StageOf(trace, record->rank), record->rank)
              .first->second;
      first = std::min(first, record->rank);
    }
  }
  for (const auto& [id, pieces] : tensors) {
    std::map<int, int64_t> begins;  // rank -> its first record
    for (const Record* record : pieces.pieces) {
      int64_t& begin =
          begins.try_emplace(record->rank, record->sequence).first->second;
      begin = std::min(begin, record->sequence);
    }
    for (const auto& [rank, sequence] : begins) {
      const int first = first_of_stage.at(StageOf(trace, rank));
      const auto common = begins.find(first);
      if (rank != first && common != begins.end()) {
        anchors_[{id.iteration, rank}].push_back({sequence, common->second});
      }
    }
  }
  for (auto& [key, anchors] : anchors_) {
    std::sort(anchors.begin(), anchors.end(),
              [](const Anchor& a, const Anchor& b) { return a.own < b.own; });
    int64_t largest = -1;
    for (Anchor& anchor : anchors) {
      largest = std::max(largest, anchor.first);
      anchor.first = largest;
    }
  }
}

int64_t CommonClock::At(const Record& record) const {
  const auto found = anchors_.find({record.id.iteration, record.rank});
  if (found == anchors_.end()) return record.sequence;
  const auto after = std::upper_bound(
      found->second.begin(), found->second.end(), record.sequence,
      [](int64_t sequence, const Anchor& a) { return sequence < a.own; });
  return after == found->second.begin() ? -1 : std::prev(after)->first;
}

}  // namespace ttrace
