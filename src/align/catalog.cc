#include "src/align/catalog.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <variant>

namespace ttrace {
namespace {

bool IsSumOverMicroBatches(const Record& record) {
  return std::any_of(record.placements.begin(), record.placements.end(),
                     [](const auto& placement) {
                       return placement.first == "mb" &&
                              std::holds_alternative<Partial>(placement.second);
                     });
}

}  // namespace

int64_t TensorPieces::elements_held() const {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t held = 0;
  for (const Record* record : pieces) {
    const int64_t count = record->layout.local_count();
    if (count > kMost - held) return kMost;
    held += count;
  }
  return held;
}

bool TensorPieces::MayBeWhole() const {
  const int64_t declared = pieces.front()->layout.global_count();
  return declared > 0 && elements_held() >= declared;
}

Catalog::Catalog(std::shared_ptr<const Trace> trace)
    : trace_(std::move(trace)) {
  std::map<int, const RankTrace*> ranks;
  for (const RankTrace& rank : trace_->ranks()) ranks[rank.meta.rank] = &rank;
  for (const Record& record : trace_->records()) {
    if (IsSumOverMicroBatches(record) &&
        !ranks.at(record.rank)->Completed(record.id.iteration, record.leg)) {
      unfinished_sums_.emplace(record.id, record.rank);
      continue;
    }
    TensorPieces& pieces = tensors_[record.leg][record.id];
    pieces.trace = trace_.get();
    pieces.pieces.push_back(&record);
  }
  for (auto& [leg, tensors] : tensors_) {
    legs_.push_back(leg);  // a map: sorted already
    for (auto& [id, pieces] : tensors) {
      std::sort(pieces.pieces.begin(), pieces.pieces.end(),
                [](const Record* a, const Record* b) {
                  return std::tie(a->rank, a->micro_batch, a->sequence) <
                         std::tie(b->rank, b->micro_batch, b->sequence);
                });
      // Sequences of different ranks are not ordered in time; the smallest one
      // only says about where in the run the tensor belongs. Ties go to the
      // lowest rank.
      const Record* first =
          *std::min_element(pieces.pieces.begin(), pieces.pieces.end(),
                            [](const Record* a, const Record* b) {
                              return std::tie(a->sequence, a->rank) <
                                     std::tie(b->sequence, b->rank);
                            });
      pieces.first_sequence = first->sequence;
      pieces.first_rank = first->rank;
    }
  }
}

bool Catalog::HasLeg(const std::string& leg) const {
  return tensors_.find(leg) != tensors_.end();
}

const std::map<TensorId, TensorPieces>& Catalog::tensors(
    const std::string& leg) const {
  static const std::map<TensorId, TensorPieces> kNone;
  const auto found = tensors_.find(leg);
  return found == tensors_.end() ? kNone : found->second;
}

const TensorPieces* Catalog::Find(const std::string& leg,
                                  const TensorId& id) const {
  const auto& all = tensors(leg);
  const auto found = all.find(id);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace ttrace
