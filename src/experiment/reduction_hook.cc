#include "src/experiment/reduction_hook.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "src/compare/compare_tensor.h"
#include "src/numeric/round_to.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

// What the collectives of one kind of number add up to.
struct Sent {
  std::map<DType, int64_t> elements;
  bool only_sums = true;  // of floating numbers

  int64_t all() const {
    int64_t sum = 0;
    for (const auto& [dtype, count] : elements) sum += count;
    return sum;
  }
  DType Coarsest() const {
    return std::max_element(elements.begin(), elements.end(),
                            [](const auto& a, const auto& b) {
                              return UnitRoundoff(a.first) <
                                     UnitRoundoff(b.first);
                            })
        ->first;
  }
};

Sent SentIn(const CollectiveLog& seen, int rank, int iteration,
            const std::vector<int>& members) {
  Sent out;
  for (const Collective& call : seen.seen) {
    if (call.rank != rank || call.iteration != iteration ||
        (call.phase != "backward" && call.phase != "reduction") ||
        call.members != members || call.elements == 0 || !call.node.empty()) {
      continue;
    }
    const std::optional<DType> dtype = ParseDType(call.dtype);
    if (!call.Sums() || !dtype || !Info(*dtype).floating) {
      out.only_sums = false;
    } else {
      out.elements[*dtype] += call.elements;
    }
  }
  return out;
}

// Reads the precision off what was sent. `gradients`: how many elements there
// are to be reduced.
void Tell(const Sent& sent, int64_t gradients, ReductionHook* hook) {
  if (!sent.only_sums) {
    hook->why_unknown = "it exchanges something else than sums of gradients";
    return;
  }
  const int64_t all = sent.all();
  if (all == 0 || gradients <= 0) {
    hook->why_unknown = "none of its collectives was seen";
    return;
  }
  const DType coarsest = sent.Coarsest();
  const auto whole = [&](int64_t elements) {
    return elements >= gradients && elements % gradients == 0;
  };
  const int64_t coarse = sent.elements.at(coarsest);
  // Beside gradients a model may sum statistics of its own.
  const bool nothing_coarse =
      all >= gradients && UnitRoundoff(coarsest) <= UnitRoundoff(DType::kF32);
  if (!whole(all) && !whole(coarse) && !nothing_coarse) {
    hook->why_unknown = "it sums other numbers of elements than there are";
    return;
  }
  hook->sends = coarsest;
  hook->times =
      std::max<int64_t>(1, whole(all) ? all / gradients : coarse / gradients);
}

ReductionHook ReadHook(const ParsedNote& note, const CollectiveLog& seen) {
  const Json& json = note.json;
  ReductionHook out;
  out.name = TextAt(json, "name");
  std::vector<int> members;
  if (const auto ranks = json.find("ranks");
      ranks != json.end() && ranks->is_array()) {
    for (const Json& rank : *ranks) {
      if (rank.is_number_integer()) members.push_back(rank.get<int>());
    }
  }
  std::sort(members.begin(), members.end());
  out.ranks = std::max<int64_t>(1, static_cast<int64_t>(members.size()));
  out.times = std::max<int64_t>(1, CountAt(json, "times"));
  if (const auto dtype = ParseDType(TextAt(json, "sends"))) {
    out.sends = dtype;
    return out;
  }
  const auto iteration = note.iteration();
  if (!iteration || !seen.complete.contains({note.rank, *iteration})) {
    out.why_unknown = "its collectives were not recorded";
    return out;
  }
  Tell(SentIn(seen, note.rank, *iteration, members), CountAt(json, "elements"),
       &out);
  return out;
}

// Whether less is known of `a` than of `b`.
bool Worse(const ReductionHook& a, const ReductionHook& b) {
  if (!a.sends || !b.sends) return !a.sends && b.sends;
  return UnitRoundoff(*a.sends) > UnitRoundoff(*b.sends) ||
         (*a.sends == *b.sends && a.times > b.times);
}

}  // namespace

std::optional<ReductionHook> ReadReductionHook(const NoteList& notes,
                                               const CollectiveLog& seen) {
  std::optional<ReductionHook> found;
  ForEachNote(notes, {"comm_hook"}, [&](const ParsedNote& note) {
    ReductionHook hook = ReadHook(note, seen);
    if (!found || Worse(hook, *found)) found = std::move(hook);
  });
  return found;
}

double TermsOverSum(const TensorPieces& pieces) {
  const auto sum = SumOfSquares(pieces);
  if (!sum.ok() || !(sum->sum > 0)) return 1;
  double squares = 0;
  for (const Record& piece : pieces.pieces) {
    RecordTable records;
    RecordFields term = piece.fields();
    term.placements.clear();
    TensorPieces alone = pieces;
    alone.pieces.clear();
    alone.pieces.push_back(records.Append(term));
    const auto square = SumOfSquares(alone);
    if (!square.ok()) return 1;
    squares += square->sum;
  }
  const double ratio = squares / sum->sum;
  return std::isfinite(ratio) ? ratio : 1;
}

}  // namespace ttrace
