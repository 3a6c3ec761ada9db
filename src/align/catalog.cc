#include "src/align/catalog.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

// What the optimizer's step shows.
bool IsOfTheStep(Role role) {
  return role == Role::kGradReduced || role == Role::kGradNorm ||
         role == Role::kParamUpdated || role == Role::kOptimState;
}

// The iterations of which a rank says that both passes of its real leg are
// recorded, whatever became of it afterwards.
std::set<int> PassesCompleted(const RankTrace& rank) {
  std::set<int> out;
  for (const Note& note : rank.notes) {
    if (note.kind != "passes_complete") continue;
    const auto json = nlohmann::json::parse(note.json, nullptr, false);
    if (!json.is_object()) continue;
    const auto iteration = json.find("iteration");
    if (iteration != json.end() && iteration->is_number_integer()) {
      out.insert(iteration->get<int>());
    }
  }
  return out;
}

// A rank that did not come to the end of a sum may lack terms of it.
class FinishedSums {
 public:
  explicit FinishedSums(const Trace& trace) {
    for (const RankTrace& rank : trace.ranks()) {
      ranks_[rank.meta.rank] = {&rank, PassesCompleted(rank)};
    }
  }

  bool Has(const Record& record) const {
    const auto& [rank, passes] = ranks_.at(record.rank);
    return rank->Completed(record.id.iteration, record.leg) ||
           (record.leg == "real" && !IsOfTheStep(record.id.role) &&
            passes.contains(record.id.iteration));
  }

 private:
  std::map<int, std::pair<const RankTrace*, std::set<int>>> ranks_;
};

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
  const FinishedSums finished(*trace_);
  for (const Record& record : trace_->records()) {
    if (IsPartialOver(record.placements, "mb") && !finished.Has(record)) {
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

void Catalog::Reread(const TensorId& id,
                     const std::function<void(Record*)>& change) {
  for (auto& [leg, tensors] : tensors_) {
    const auto found = tensors.find(id);
    if (found == tensors.end()) continue;
    for (const Record*& piece : found->second.pieces) {
      Record& copy = reread_.emplace_back(*piece);
      change(&copy);
      piece = &copy;
    }
  }
}

}  // namespace ttrace
