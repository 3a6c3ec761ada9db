#include <algorithm>
#include <cstddef>
#include <set>
#include <unordered_map>
#include <utility>

#include "src/compare/row_map.h"
#include "src/experiment/match_rows.h"
#include "src/experiment/row_alignment.h"
#include "src/experiment/row_sequences.h"
#include "src/experiment/twin_ranks.h"

namespace ttrace {
namespace {

using Parts = FedRows::Parts;

// Whether the places of rows are those that were meant, although some rows are
// equal. Where rows are samples, equal ones may stand for one another as long
// as most are not. Tokens and nodes are what they are by those around them: a
// run of them has to be there once.
bool TellsPlaces(const RowKeys& theirs, const RowKeys& own,
                 const std::vector<int64_t>& places, bool are_samples) {
  if (are_samples) {
    return 2 * CountDistinct(theirs) > static_cast<int64_t>(theirs.size());
  }
  std::unordered_multimap<uint64_t, size_t> all;
  for (size_t r = 0; r < theirs.size(); ++r) all.emplace(theirs[r], r);
  for (size_t begin = 0; begin < own.size();) {
    size_t end = begin + 1;
    while (end < own.size() && places[end] == places[end - 1] + 1) ++end;
    const auto [first, last] = all.equal_range(own[begin]);
    const auto size = static_cast<std::ptrdiff_t>(end - begin);
    const auto equal = std::count_if(first, last, [&](const auto& candidate) {
      const size_t at = candidate.second;
      return at + (end - begin) <= theirs.size() &&
             std::equal(theirs.begin() + static_cast<std::ptrdiff_t>(at),
                        theirs.begin() + static_cast<std::ptrdiff_t>(at) + size,
                        own.begin() + static_cast<std::ptrdiff_t>(begin));
    });
    if (equal != 1) return false;
    // A row between two runs may be the last of the one or the first of the
    // other, as the end of a sentence is, which is equal in all of them.
    if (end < own.size()) {
      const auto behind = static_cast<size_t>(places[end - 1] + 1);
      const auto next = static_cast<size_t>(places[end]);
      if ((behind < theirs.size() && theirs[behind] == own[end]) ||
          (next > 0 && theirs[next - 1] == own[end - 1])) {
        return false;
      }
    }
    begin = end;
  }
  return true;
}

// What is known of a call beside its tensors.
struct Call {
  bool is_data = false;
  // Something counts within the batch, so that rows may be no samples by
  // themselves.
  bool indexed = false;
};

// Nothing if rows are in another order, and in which cannot be told. `mixed`
// gets arguments whose rows are beside others.
std::optional<RowSpace> SpaceOf(const RowGroup& group, AreTheirs are_theirs,
                                const Call& call,
                                std::vector<std::string>* mixed) {
  std::vector<const RowSequence*> matching;
  for (const RowSequence& s : group.sequences) {
    if (s.matches) matching.push_back(&s);
  }
  std::stable_sort(matching.begin(), matching.end(),
                   [](const RowSequence* a, const RowSequence* b) {
                     return CountDistinct(a->own) > CountDistinct(b->own);
                   });
  RowSpace space;
  space.reference = matching.front()->reference;
  space.candidate = matching.front()->candidate;
  RowKeys theirs = matching.front()->theirs;
  RowKeys own = matching.front()->own;
  space.by = {matching.front()->name};
  for (size_t i = 1; i < matching.size(); ++i) {
    RowKeys more_theirs = Joined(theirs, matching[i]->theirs);
    RowKeys more_own = Joined(own, matching[i]->own);
    if (!are_theirs(more_theirs, more_own)) {
      if (matching[i]->by_rows() && !matching[i]->is_relative &&
          !IsOfItem(matching[i]->name)) {
        mixed->push_back(matching[i]->name.first);
      }
      continue;
    }
    theirs = std::move(more_theirs);
    own = std::move(more_own);
    space.by.push_back(matching[i]->name);
  }
  space.total = static_cast<int64_t>(theirs.size());
  if (theirs != own) {
    space.map = RowMap{MatchRows(theirs, own)};
    const bool are_samples = !call.indexed && space.by.front().second <= 0;
    // Equal in all that was read for them, rows are the same sample.
    const bool known_whole =
        are_samples && space.by.size() == group.sequences.size() &&
        (call.is_data ||
         std::any_of(space.by.begin(), space.by.end(), IsOfItem));
    if (!known_whole &&
        !TellsPlaces(theirs, own, space.map->to_reference, are_samples)) {
      return std::nullopt;
    }
  }
  return space;
}

// What both runs have as many of.
void AddUntold(const RowGroup& group, std::vector<RowSpace>* untold) {
  const RowSequence& any = group.sequences.front();
  if (any.theirs.size() != any.own.size()) return;
  RowSpace space;
  space.reference = any.reference;
  space.candidate = any.candidate;
  space.total = static_cast<int64_t>(any.own.size());
  untold->push_back(std::move(space));
}

// `first`: arguments whose rows their first dimension counts. Of these the
// second is the length.
void AddLengths(const RowGroup& group, const std::set<std::string>& first,
                std::vector<PaddedLength>* lengths) {
  for (const RowSequence& s : group.sequences) {
    if (!s.matches || !s.is_padded) continue;
    if (!s.by_rows() && first.contains(s.name.first)) continue;
    PaddedLength length;
    length.reference = s.reference_width;
    length.candidate = s.candidate_width;
    length.at_begin = s.padding.at_begin;
    for (const auto* side : {&length.reference, &length.candidate}) {
      for (const auto& [micro_batch, width] : *side) {
        length.longest = std::max(length.longest, width);
      }
    }
    const bool known = std::any_of(
        lengths->begin(), lengths->end(), [&](const PaddedLength& other) {
          return other.reference == length.reference &&
                 other.candidate == length.candidate;
        });
    if (!known) lengths->push_back(std::move(length));
  }
}

// The rank of each row.
std::vector<int> RanksOf(const RowSpace::Counts& counts,
                         const Parts& candidate) {
  std::vector<int> out;
  for (const auto& [micro_batch, count] : counts) {
    out.insert(out.end(), static_cast<size_t>(count),
               candidate.at(micro_batch).rank);
  }
  return out;
}

// Those that have rows which the reference has not.
std::vector<int> RanksOfOthers(const RowSequence& s, const Parts& candidate) {
  const std::vector<int> ranks = RanksOf(s.candidate, candidate);
  const std::set<uint64_t> theirs(s.theirs.begin(), s.theirs.end());
  std::set<int> out;
  for (size_t r = 0; r < s.own.size(); ++r) {
    if (!theirs.contains(s.own[r])) out.insert(ranks[r]);
  }
  return {out.begin(), out.end()};
}

// Whose rows the candidate has that the reference does not, all tensors of a
// row together.
void NameForeign(const RowGroup& group, const Parts& candidate,
                 RowsOfCall* out) {
  std::vector<const RowSequence*> all;
  for (const RowSequence& s : group.sequences) {
    if (s.names_rows()) all.push_back(&s);
  }
  if (all.empty()) return;
  RowKeys theirs = all.front()->theirs;
  RowKeys own = all.front()->own;
  for (size_t i = 1; i < all.size(); ++i) {
    theirs = Joined(theirs, all[i]->theirs);
    own = Joined(own, all[i]->own);
  }
  const std::vector<int> ranks = RanksOf(all.front()->candidate, candidate);
  std::map<uint64_t, int64_t> left;
  for (const uint64_t key : theirs) ++left[key];
  std::set<uint64_t> exceeded;
  for (size_t r = 0; r < own.size(); ++r) {
    const auto found = left.find(own[r]);
    if (found == left.end()) {
      out->foreign.push_back(static_cast<int64_t>(r));
      ++out->foreign_of[ranks[r]];
    } else if (--found->second < 0) {
      exceeded.insert(own[r]);
    }
  }
  const bool none_is_missing =
      std::all_of(left.begin(), left.end(),
                  [](const auto& entry) { return entry.second <= 0; });
  if (!out->foreign.empty()) {
    out->fed = static_cast<int64_t>(own.size());
    out->fed_in_reference = static_cast<int64_t>(theirs.size());
    // Of another draw, rows that were drawn twice may be two ranks' by chance.
    exceeded = FindTwins(own, ranks, theirs.size()).keys;
  } else if (none_is_missing) {
    out->in_excess = !exceeded.empty();
    return;
  }
  std::set<int> repeating;
  for (size_t r = 0; r < own.size(); ++r) {
    if (!exceeded.contains(own[r])) continue;
    out->repeated.rows.push_back(static_cast<int64_t>(r));
    repeating.insert(ranks[r]);
  }
  out->repeated.ranks.assign(repeating.begin(), repeating.end());
}

// Whether each of several ranks was fed, in one micro-batch, all that the
// reference was. Of the model's own arguments, or of the item's.
bool IsShared(const Parts& reference, const Parts& candidate) {
  std::set<int> ranks;
  for (const auto& [micro_batch, part] : candidate) ranks.insert(part.rank);
  if (reference.size() != 1 || ranks.size() < 2 ||
      ranks.size() != candidate.size()) {
    return false;
  }
  const FedPart& whole = reference.begin()->second;
  bool any = false;
  for (const auto& [name, tensor] : whole.tensors) {
    if (IsOfItem(name) || name.second != 0) continue;
    any = true;
    for (const auto& [micro_batch, part] : candidate) {
      const auto own = part.tensors.find(name);
      // Of too many rows there are no digests.
      if (own == part.tensors.end() || tensor.digests.whole.empty() ||
          own->second.digests.whole != tensor.digests.whole) {
        return false;
      }
    }
  }
  return any;
}

RowsOfCall Match(const Parts& reference, const Parts& candidate,
                 AreTheirs are_theirs, bool is_data) {
  RowsOfCall out;
  if (reference.empty() || candidate.empty()) return out;
  out.shared = IsShared(reference, candidate);
  if (out.shared) return out;
  const std::vector<RowGroup> groups =
      GroupSequences(reference, candidate, are_theirs);
  std::set<std::string> matched;
  std::set<std::string> by_first;  // along their first dimension
  for (const RowGroup& group : groups) {
    for (const RowSequence& s : group.sequences) {
      if (!s.matches) continue;
      matched.insert(s.name.first);
      if (s.by_rows()) by_first.insert(s.name.first);
    }
  }
  Call call = {is_data};
  for (const RowGroup& group : groups) {
    for (const RowSequence& s : group.sequences) {
      call.indexed = call.indexed || s.is_relative;
      if (s.is_relative && !matched.contains(s.name.first) && s.by_rows()) {
        out.relative.push_back(s.name.first);
      }
    }
  }
  // Whether all that is known of the rows lies along a second dimension.
  const auto lies_second = [](const RowGroup& group) {
    return group.matches() && !group.by_rows() && group.tells_rows();
  };
  // Arguments whose second dimension counts these: the first of a hidden state
  // is its layers.
  std::set<std::string> second;
  for (const RowGroup& group : groups) {
    if (!lies_second(group)) continue;
    for (const RowSequence& s : group.sequences) {
      if (!s.by_rows()) second.insert(s.name.first);
    }
  }
  // Arguments that count the rows and hold others, beside what holds the same.
  const auto others = [&](const RowGroup& group) {
    std::vector<const RowSequence*> found;
    for (const RowSequence& s : group.sequences) {
      const bool names_rows = second.contains(s.name.first)
                                  ? !s.by_rows() && lies_second(group)
                                  : s.names_rows();
      if (names_rows && !matched.contains(s.name.first)) found.push_back(&s);
    }
    return found;
  };
  for (const RowGroup& group : groups) {
    if (!group.matches()) {
      AddUntold(group, &out.untold);
      continue;
    }
    const auto unlike = others(group);
    if (!unlike.empty() && !group.tells_rows()) {
      NameForeign(group, candidate, &out);
      if (!out.foreign.empty() || !out.repeated.rows.empty()) continue;
    }
    for (const RowSequence* s : unlike) {
      if (IsOfItem(s->name)) continue;
      OtherValues values = {s->name.first, RanksOfOthers(*s, candidate)};
      // Values of a few kinds are many rows'.
      values.repeats =
          values.ranks.empty() &&
          2 * CountDistinct(s->theirs) > static_cast<int64_t>(s->theirs.size());
      out.other.push_back(std::move(values));
    }
    if (auto space = SpaceOf(group, are_theirs, call, &out.mixed)) {
      out.spaces.push_back(*std::move(space));
    } else {
      AddUntold(group, &out.untold);
    }
    AddLengths(group, by_first, &out.lengths);
  }
  // Where rows are counted by nothing that stands first, the batch may lie
  // along another dimension: of all arguments then.
  const bool has_rows =
      std::any_of(groups.begin(), groups.end(),
                  [](const RowGroup& g) { return g.by_rows(); }) ||
      std::all_of(groups.begin(), groups.end(),
                  [&](const RowGroup& group) { return others(group).empty(); });
  if (!has_rows && out.foreign.empty() && out.repeated.rows.empty()) {
    // The largest group: most tensors have their rows first. Of a call of the
    // model its arguments count, not what was read for it.
    const RowGroup* largest = nullptr;
    std::ptrdiff_t most = 0;
    for (const RowGroup& group : groups) {
      const auto rows =
          std::count_if(group.sequences.begin(), group.sequences.end(),
                        [](const RowSequence& s) {
                          return s.by_rows() && !IsOfItem(s.name);
                        });
      if (rows <= most) continue;
      most = rows;
      largest = &group;
    }
    if (largest != nullptr) NameForeign(*largest, candidate, &out);
  }
  return out;
}

}  // namespace

RowsOfCall MatchCall(const Parts& reference, const Parts& candidate,
                     bool is_data) {
  return Match(reference, candidate, HoldTheSame, is_data);
}

RowsOfCall PlaceRows(const Parts& reference, const FedPart& own, bool is_data) {
  RowsOfCall out = Match(reference, {{0, own}}, Contains, is_data);
  for (RowSpace& space : out.spaces) {
    if (space.map) continue;
    space.map.emplace();
    for (int64_t r = 0; r < space.candidate.begin()->second; ++r) {
      space.map->to_reference.push_back(r);
    }
  }
  return out;
}

}  // namespace ttrace
