#include "src/experiment/common_clock.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/experiment/execution_order.h"
#include "src/experiment/stages.h"

namespace ttrace {
namespace {

constexpr int kNoRank = -1;

// The first rank of each stage that holds any of the tensors.
std::vector<int> FirstRanks(const std::map<TensorId, TensorPieces>& tensors,
                            const Stages& stages) {
  std::vector<int> firsts;
  for (const auto& [id, pieces] : tensors) {
    int last = kNoRank;
    for (const Record& record : pieces.pieces) {
      const int rank = record.rank();
      if (rank == std::exchange(last, rank)) continue;
      const auto stage = static_cast<size_t>(stages.Of(rank));
      if (stage >= firsts.size()) firsts.resize(stage + 1, kNoRank);
      int& first = firsts[stage];
      if (first == kNoRank || rank < first) first = rank;
    }
  }
  return firsts;
}

// A rank and the number of its first record of a tensor.
struct Begin {
  int rank = 0;
  int64_t sequence = 0;
};

// By rank, as the pieces are.
void FindBegins(const TensorPieces& pieces, std::vector<Begin>* begins) {
  begins->clear();
  for (const Record& record : pieces.pieces) {
    const int rank = record.rank();
    if (begins->empty() || begins->back().rank != rank) {
      begins->push_back({rank, record.sequence()});
    } else {
      int64_t& sequence = begins->back().sequence;
      sequence = std::min(sequence, record.sequence());
    }
  }
}

}  // namespace

CommonClock::CommonClock(const std::map<TensorId, TensorPieces>& tensors) {
  if (tensors.empty()) return;
  const Stages stages(*tensors.begin()->second.trace);
  const std::vector<int> firsts = FirstRanks(tensors, stages);
  is_first_.resize(stages.rank_count());
  for (const int rank : firsts) {
    if (rank != kNoRank) is_first_[static_cast<size_t>(rank)] = true;
  }
  std::map<Stretch, std::vector<std::vector<Anchor>>> anchors;  // by rank
  std::vector<Begin> begins;
  for (const auto& [id, pieces] : tensors) {
    FindBegins(pieces, &begins);
    auto& of_rank = anchors[StretchOf(id)];
    of_rank.resize(stages.rank_count());
    for (const auto& [rank, sequence] : begins) {
      const int first = firsts[static_cast<size_t>(stages.Of(rank))];
      if (rank == first) continue;
      const auto common = std::lower_bound(
          begins.begin(), begins.end(), first,
          [](const Begin& begin, int wanted) { return begin.rank < wanted; });
      if (common == begins.end() || common->rank != first) continue;
      of_rank[static_cast<size_t>(rank)].push_back(
          {static_cast<uint32_t>(sequence),
           static_cast<uint32_t>(common->sequence)});
    }
  }
  for (auto& [stretch, of_rank] : anchors) {
    std::vector<std::vector<Run>>& runs = runs_[stretch];
    for (std::vector<Anchor>& of_one : of_rank) {
      // One by one, because all are many.
      runs.push_back(RunsOf(std::exchange(of_one, {})));
    }
  }
}

CommonClock::Stretch CommonClock::StretchOf(const TensorId& id) {
  constexpr int kReduced = 5;
  const int phase = PhaseOf(id);
  return {id.iteration, phase <= kReduced ? 0 : phase};
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
  const auto rank = static_cast<size_t>(record.rank());
  if (is_first_[rank]) return record.sequence();
  const auto found = runs_.find(StretchOf(record.id()));
  if (found == runs_.end()) return -1;
  const std::vector<Run>& runs = found->second[rank];
  const auto after = std::upper_bound(
      runs.begin(), runs.end(), record.sequence(),
      [](int64_t sequence, const Run& run) { return sequence < run.own; });
  if (after == runs.begin()) return -1;
  const Run& run = *std::prev(after);
  return run.first +
         std::min(record.sequence() - run.own, run.count - int64_t{1});
}

}  // namespace ttrace
