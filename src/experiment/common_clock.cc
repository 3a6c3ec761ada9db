#include "src/experiment/common_clock.h"

#include <algorithm>
#include <utility>

#include "src/experiment/execution_order.h"

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
    for (const Record& record : pieces.pieces) {
      int& first =
          first_of_stage
              .try_emplace(StageOf(trace, record.rank()), record.rank())
              .first->second;
      first = std::min(first, record.rank());
    }
  }
  for (const auto& [stage, rank] : first_of_stage) firsts_.insert(rank);
  std::map<Stretch, std::vector<Anchor>> anchors;
  for (const auto& [id, pieces] : tensors) {
    std::map<int, int64_t> begins;  // rank -> its first record
    for (const Record& record : pieces.pieces) {
      int64_t& begin =
          begins.try_emplace(record.rank(), record.sequence()).first->second;
      begin = std::min(begin, record.sequence());
    }
    for (const auto& [rank, sequence] : begins) {
      const int first = first_of_stage.at(StageOf(trace, rank));
      const auto common = begins.find(first);
      if (rank != first && common != begins.end()) {
        anchors[StretchOf(id, rank)].push_back(
            {static_cast<uint32_t>(sequence),
             static_cast<uint32_t>(common->second)});
      }
    }
  }
  while (!anchors.empty()) {  // one by one, because all are many
    auto node = anchors.extract(anchors.begin());
    runs_.emplace(node.key(), RunsOf(std::move(node.mapped())));
  }
}

CommonClock::Stretch CommonClock::StretchOf(const TensorId& id, int rank) {
  constexpr int kReduced = 5;
  const int phase = PhaseOf(id);
  return {id.iteration, phase <= kReduced ? 0 : phase, rank};
}

std::vector<CommonClock::Run> CommonClock::RunsOf(std::vector<Anchor> anchors) {
  std::sort(anchors.begin(), anchors.end(),
            [](const Anchor& a, const Anchor& b) { return a.own < b.own; });
  std::vector<Run> out;
  uint32_t largest = 0;
  for (const Anchor& anchor : anchors) {
    largest = std::max(largest, anchor.first);
    if (!out.empty() && anchor.own == out.back().own + out.back().count &&
        largest == out.back().first + out.back().count) {
      ++out.back().count;
    } else {
      out.push_back({anchor.own, largest, 1});
    }
  }
  out.shrink_to_fit();
  return out;
}

int64_t CommonClock::At(const Record& record) const {
  if (firsts_.contains(record.rank())) return record.sequence();
  const auto found = runs_.find(StretchOf(record.id(), record.rank()));
  if (found == runs_.end()) return -1;
  const auto after = std::upper_bound(
      found->second.begin(), found->second.end(), record.sequence(),
      [](int64_t sequence, const Run& run) { return sequence < run.own; });
  if (after == found->second.begin()) return -1;
  const Run& run = *std::prev(after);
  return run.first +
         std::min(record.sequence() - run.own, run.count - int64_t{1});
}

}  // namespace ttrace
