#include "src/experiment/execution_order.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace ttrace {

int PhaseOf(const TensorId& id) {
  switch (id.role) {
    case Role::kData:
    case Role::kParam:
    case Role::kBuffer:
      return 0;
    case Role::kInput:
    case Role::kOutput:
      return id.pass == Pass::kRecompute ? 3 : 1;
    case Role::kLoss:
      return 2;
    case Role::kGradOutput:
    case Role::kGradInput:
      return 3;
    case Role::kGradLocal:
      return 4;
    case Role::kGradReduced:
      return 5;
    case Role::kGradNorm:
      return 6;
    case Role::kOptimState:
      return id.pass == Pass::kForward ? 7 : 8;
    case Role::kParamUpdated:
      return 8;
  }
  return 8;
}

ExecutionKeys::ExecutionKeys(const std::map<TensorId, TensorPieces>& tensors)
    : rounds_(tensors), clock_(tensors), parts_(tensors) {
  if (tensors.empty()) return;
  const Trace& trace = *tensors.begin()->second.trace;
  if (trace.mesh().Find("pp") >= 0) stages_.emplace(trace);
}

ExecutionKey ExecutionKeys::Of(const TensorId& id,
                               const TensorPieces& pieces) const {
  ExecutionKey best;
  best.iteration = id.iteration;
  best.phase = PhaseOf(id);
  Record speaker = pieces.pieces.front();
  bool found = false;
  for (const Record& record : pieces.pieces) {
    ExecutionKey key = best;
    key.rank = record.rank();
    key.own = record.sequence();
    if (stages_) {
      const int stage = stages_->Of(key.rank);
      // Gradients appear, and are reduced, from the last stage on.
      key.stage = key.phase >= 3 && key.phase <= 5 ? -stage : stage;
      key.round = rounds_.Of(record);
    }
    // The lowest rank of the stage speaks for it.
    const auto place = [](const ExecutionKey& k) {
      return std::tuple(k.round, k.stage, k.rank, k.own);
    };
    if (found && place(key) >= place(best)) continue;
    best = key;
    speaker = record;
    found = true;
  }
  best.sequence = clock_.At(speaker);
  best.part = parts_.Of(speaker, id.iteration);
  return best;
}

void FollowReference(const std::function<int64_t(const TensorId&)>& sequence_of,
                     std::vector<Ordered>* order) {
  auto begin = order->begin();
  while (begin != order->end()) {
    const auto same = [&](const Ordered& other) {
      return other.first.iteration == begin->first.iteration &&
             other.first.part == begin->first.part &&
             other.first.phase == begin->first.phase;
    };
    const auto end = std::find_if_not(begin, order->end(), same);
    if (begin->first.phase == 1 || begin->first.phase == 3) {
      std::map<std::pair<int, int>, int64_t> last;  // of a chunk
      std::vector<std::pair<int64_t, Ordered>> placed;
      for (auto at = begin; at != end; ++at) {
        const std::pair chunk(at->first.round, at->first.stage);
        int64_t& place = last.try_emplace(chunk, -1).first->second;
        const int64_t found = sequence_of(*at->second);
        if (found >= 0) place = found;
        placed.emplace_back(place, *at);
      }
      std::stable_sort(
          placed.begin(), placed.end(),
          [](const auto& a, const auto& b) { return a.first < b.first; });
      std::transform(placed.begin(), placed.end(), begin,
                     [](const auto& entry) { return entry.second; });
    }
    begin = end;
  }
}

}  // namespace ttrace
