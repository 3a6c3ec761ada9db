#include "src/align/catalog.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include "src/align/uneven_rows.h"
#include "src/trace/hasher.h"
#include "src/trace/interned.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

// What the optimizer's step shows.
bool IsOfTheStep(Role role) {
  return role == Role::kGradReduced || role == Role::kGradNorm ||
         role == Role::kParamUpdated || role == Role::kOptimState;
}

// A rank that did not come to the end of a sum may lack terms of it.
class FinishedSums {
 public:
  explicit FinishedSums(const Trace& trace) {
    for (const RankTrace& rank : trace.ranks()) {
      ranks_[rank.meta.rank] = &rank;
    }
    ForEachNote(trace, {"passes_complete"}, [&](const ParsedNote& note) {
      if (const auto iteration = note.iteration()) {
        passes_.emplace(note.rank, *iteration);
      }
    });
  }

  bool Has(const Record& record) const {
    const int iteration = record.id().iteration;
    return ranks_.at(record.rank())->Completed(iteration, record.leg()) ||
           (record.leg() == kReal && !IsOfTheStep(record.id().role) &&
            passes_.contains({record.rank(), iteration}));
  }

 private:
  std::map<int, const RankTrace*> ranks_;
  // (rank, iteration) of which the rank says that both passes of its real leg
  // are recorded, whatever became of it afterwards.
  std::set<std::pair<int, int>> passes_;
};

bool IsRouted(const TensorPieces& pieces) {
  return std::any_of(pieces.pieces.begin(), pieces.pieces.end(),
                     [](const Record& r) { return r.routed().has_value(); });
}

// REQUIRES: IsRouted(pieces)
auto RouterOf(const TensorPieces& pieces) {
  const Record record =
      *std::find_if(pieces.pieces.begin(), pieces.pieces.end(),
                    [](const Record& r) { return r.routed().has_value(); });
  return std::tuple(std::string_view(record.leg().name()),
                    record.id().iteration,
                    std::string_view(record.routed()->by),
                    std::string_view(record.routed()->arg), record.id().call,
                    record.id().pass == Pass::kRecompute);
}

struct PlacedRows {
  std::vector<DimLayout> of_piece;
  DimLayout all;
};

// Finds a record's tensor without comparing names again: equal names and forms
// have equal numbers in the table.
class Shelves {
 public:
  explicit Shelves(std::map<Leg, std::map<TensorId, TensorPieces>>* all)
      : all_(*all) {}

  TensorPieces& Of(const Record& record) {
    const uint32_t shelf =
        shelves_.NumberOf({record.form_number(), record.id_number()});
    if (shelf == pieces_.size()) {
      pieces_.push_back(&all_[record.leg()][record.id()]);
    }
    return *pieces_[shelf];
  }

 private:
  struct Numbers {
    uint32_t form = 0;
    uint32_t id = 0;
    bool operator==(const Numbers&) const = default;
  };
  struct HashOfNumbers {
    size_t operator()(const Numbers& numbers) const {
      Hasher hash;
      hash.Add(uint64_t{numbers.form} << 32 | numbers.id);
      return hash.Take();
    }
  };

  std::map<Leg, std::map<TensorId, TensorPieces>>& all_;
  Interned<Numbers, HashOfNumbers> shelves_;
  std::vector<TensorPieces*> pieces_;  // by shelf; some are on several
};

// By rank and micro-batch; by rank and sequence they are.
void SortPieces(RecordList* pieces) {
  const auto before = [](const Record& a, const Record& b) {
    return std::pair(a.rank(), a.micro_batch()) <
           std::pair(b.rank(), b.micro_batch());
  };
  // Of most tensors a rank has one piece, or runs its micro-batches in order.
  for (size_t i = 1; i < pieces->size(); ++i) {
    const Record earlier = (*pieces)[i - 1];
    const Record later = (*pieces)[i];
    if (later.micro_batch() < earlier.micro_batch() &&
        later.rank() == earlier.rank()) {
      pieces->StableSort(before);
      return;
    }
  }
}

// Where all pieces of a tensor lie, or why one of them has no place. Rows that
// are too many or too few are worse than a map that is not there.
std::variant<PlacedRows, RoutingTrouble> PlaceRows(const TensorPieces& pieces,
                                                   RoutingMaps* maps) {
  PlacedRows out;
  std::optional<RoutingTrouble> trouble;
  const Record first = pieces.pieces.front();
  for (const Record& record : pieces.pieces) {
    if (!record.routed() || !first.routed() ||
        record.routed()->by != first.routed()->by ||
        record.routed()->arg != first.routed()->arg ||
        record.routed()->expert != first.routed()->expert) {
      RoutingTrouble mixed;
      mixed.rank = record.rank();
      mixed.detail = "it holds rows of another expert under the same name";
      return mixed;
    }
    auto tokens = maps->TokensOf(record);
    if (auto* placed = std::get_if<DimLayout>(&tokens)) {
      out.of_piece.push_back(std::move(*placed));
      continue;
    }
    auto& bad = std::get<RoutingTrouble>(tokens);
    if (!trouble || (bad.miscounted && !trouble->miscounted)) {
      trouble = std::move(bad);
    }
  }
  if (trouble) return std::move(*trouble);
  auto all = maps->AllTokens(first);
  if (auto* bad = std::get_if<RoutingTrouble>(&all)) return std::move(*bad);
  out.all = std::get<DimLayout>(std::move(all));
  return out;
}

}  // namespace

int64_t TensorPieces::elements_held() const {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t held = 0;
  for (const Record& record : pieces) {
    const int64_t count = record.layout().local_count();
    if (count > kMost - held) return kMost;
    held += count;
  }
  return held;
}

bool TensorPieces::MayBeWhole() const {
  const int64_t declared = pieces.front().layout().global_count();
  return declared > 0 && elements_held() >= declared;
}

Catalog::Catalog(std::shared_ptr<const Trace> trace)
    : trace_(std::move(trace)), fed_rows_(FedRows::Read(*trace_)) {
  const FinishedSums finished(*trace_);
  Shelves shelves(&tensors_);
  for (const Record& record : trace_->records()) {
    if (IsPartialOver(record.placements(), "mb") && !finished.Has(record)) {
      unfinished_sums_.emplace(record.id(), record.rank());
      continue;
    }
    TensorPieces& pieces = shelves.Of(record);
    // Sequences of different ranks are not ordered in time; the smallest one
    // only says about where in the run the tensor belongs. Ties go to the
    // lowest rank, which comes first.
    if (pieces.pieces.empty() || record.sequence() < pieces.first_sequence) {
      pieces.first_sequence = record.sequence();
      pieces.first_rank = record.rank();
    }
    pieces.trace = trace_.get();
    pieces.pieces.push_back(record);
  }
  for (auto& [leg, tensors] : tensors_) {
    legs_.push_back(leg);  // a map: sorted already
    for (auto& [id, pieces] : tensors) {
      SortPieces(&pieces.pieces);
      pieces.pieces.ShrinkToFit();
    }
  }
  PlaceRoutedRows();
  PlaceUnevenRows();
}

void Catalog::PlaceUnevenRows() {
  const UnevenRows uneven(fed_rows_);
  if (uneven.empty()) return;
  for (auto& [leg, tensors] : tensors_) {
    for (auto& [id, pieces] : tensors) {
      if (!uneven.MayHave(id)) continue;
      RecordList placed;
      for (const Record& piece : pieces.pieces) {
        RecordFields copy = piece.fields();
        uneven.Place(fed_rows_.CallOf(id, piece.micro_batch()), &copy);
        placed.push_back(reread_.Append(copy));
      }
      pieces.pieces = std::move(placed);
    }
  }
}

void Catalog::PlaceRoutedRows() {
  RoutingMaps maps(*trace_);
  if (maps.empty()) return;
  // Maps are kept for one forward of one router: what came of it stands
  // together.
  std::vector<TensorPieces*> routed;
  for (auto& [leg, tensors] : tensors_) {
    for (auto& [id, pieces] : tensors) {
      if (IsRouted(pieces)) routed.push_back(&pieces);
    }
  }
  std::stable_sort(routed.begin(), routed.end(),
                   [](const TensorPieces* a, const TensorPieces* b) {
                     return RouterOf(*a) < RouterOf(*b);
                   });
  for (TensorPieces* pieces : routed) {
    auto placed = PlaceRows(*pieces, &maps);
    if (auto* trouble = std::get_if<RoutingTrouble>(&placed)) {
      pieces->unplaced =
          std::make_shared<const RoutingTrouble>(std::move(*trouble));
      continue;
    }
    auto& rows = std::get<PlacedRows>(placed);
    pieces->tokens = std::make_shared<const DimLayout>(std::move(rows.all));
    RecordList placed_pieces;
    for (size_t i = 0; i < pieces->pieces.size(); ++i) {
      RecordFields copy = pieces->pieces[i].fields();
      copy.layout.dims.front() = std::move(rows.of_piece[i]);
      placed_pieces.push_back(reread_.Append(copy));
    }
    pieces->pieces = std::move(placed_pieces);
  }
}

bool Catalog::HasLeg(const Leg& leg) const {
  return tensors_.find(leg) != tensors_.end();
}

const std::map<TensorId, TensorPieces>& Catalog::tensors(const Leg& leg) const {
  static const std::map<TensorId, TensorPieces> kNone;
  const auto found = tensors_.find(leg);
  return found == tensors_.end() ? kNone : found->second;
}

const TensorPieces* Catalog::Find(const Leg& leg, const TensorId& id) const {
  const auto& all = tensors(leg);
  const auto found = all.find(id);
  return found == all.end() ? nullptr : &found->second;
}

void Catalog::Reread(const TensorId& id,
                     const std::function<void(RecordFields*)>& change) {
  for (auto& [leg, tensors] : tensors_) {
    const auto found = tensors.find(id);
    if (found == tensors.end()) continue;
    RecordList changed;
    for (const Record& piece : found->second.pieces) {
      RecordFields copy = piece.fields();
      change(&copy);
      changed.push_back(reread_.Append(copy));
    }
    found->second.pieces = std::move(changed);
  }
}

}  // namespace ttrace
