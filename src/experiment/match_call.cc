#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "src/experiment/match_rows.h"
#include "src/experiment/row_alignment.h"

namespace ttrace {
namespace {

using Parts = FedRows::Parts;

// One tensor along one dimension, of all micro-batches one after the other.
struct Sequence {
  FedName name;
  RowSpace::Counts reference;
  RowSpace::Counts candidate;
  RowKeys theirs;
  RowKeys own;
  RowSpace::Counts reference_width;
  RowSpace::Counts candidate_width;
  bool is_padded = false;   // rows are of several lengths
  bool at_begin = false;    // padding is
  bool matches = false;     // both hold the same rows, in whatever order
  bool is_relative = true;  // all parts are

  bool by_rows() const { return name.second <= 0; }
  // Other rows in it are other data. A list may be anything.
  bool names_rows() const { return name.second == 0 && !is_relative; }
};

// Appends one side; false if a micro-batch lacks it.
bool Append(const Parts& parts, const FedName& name, RowDigests* digests,
            RowSpace::Counts* counts, RowSpace::Counts* widths,
            bool* relative) {
  for (const auto& [micro_batch, part] : parts) {
    const auto found = part.tensors.find(name);
    if (found == part.tensors.end()) return false;
    const FedTensor& tensor = found->second;
    *relative = *relative && tensor.is_relative;
    if (static_cast<int64_t>(tensor.digests.whole.size()) != tensor.rows) {
      return false;
    }
    const auto add = [](const RowKeys& from, RowKeys* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    add(tensor.digests.whole, &digests->whole);
    // Where nothing may be padding, what is left is all.
    const bool cut =
        tensor.digests.without_end.size() == tensor.digests.whole.size() &&
        tensor.digests.without_begin.size() == tensor.digests.whole.size();
    add(cut ? tensor.digests.without_end : tensor.digests.whole,
        &digests->without_end);
    add(cut ? tensor.digests.without_begin : tensor.digests.whole,
        &digests->without_begin);
    (*counts)[micro_batch] = tensor.rows;
    (*widths)[micro_batch] = tensor.width;
  }
  return true;
}

// Whether the candidate's rows are the reference's: all of them, or of a part
// of the candidate some.
using AreTheirs = bool (*)(const RowKeys& theirs, const RowKeys& own);

std::optional<Sequence> SequenceOf(const FedName& name, const Parts& reference,
                                   const Parts& candidate,
                                   AreTheirs are_theirs) {
  Sequence out;
  out.name = name;
  RowDigests theirs;
  RowDigests own;
  if (!Append(reference, name, &theirs, &out.reference, &out.reference_width,
              &out.is_relative) ||
      !Append(candidate, name, &own, &out.candidate, &out.candidate_width,
              &out.is_relative)) {
    return std::nullopt;
  }
  std::set<int64_t> widths;
  for (const auto* side : {&out.reference_width, &out.candidate_width}) {
    for (const auto& [micro_batch, width] : *side) widths.insert(width);
  }
  out.theirs = theirs.whole;
  out.own = own.whole;
  out.is_padded = widths.size() > 1;
  for (const bool at_begin : {false, true}) {
    if (!out.is_padded) break;
    PaddedKeys keys = KeysWithoutPadding(theirs, own, at_begin);
    if (!are_theirs(keys.theirs, keys.own)) continue;
    out.theirs = std::move(keys.theirs);
    out.own = std::move(keys.own);
    out.at_begin = at_begin;
    break;
  }
  out.matches = are_theirs(out.theirs, out.own);
  return out;
}

// Sequences that count the same.
struct Group {
  std::vector<Sequence> sequences;

  bool matches() const {
    return std::any_of(sequences.begin(), sequences.end(),
                       [](const Sequence& s) { return s.matches; });
  }
  bool by_rows() const {
    return std::any_of(
        sequences.begin(), sequences.end(),
        [](const Sequence& s) { return s.matches && s.by_rows(); });
  }
  int64_t most_distinct() const {
    int64_t most = 0;
    for (const Sequence& s : sequences) {
      if (s.matches) most = std::max(most, CountDistinct(s.own));
    }
    return most;
  }
};

std::vector<Group> Grouped(const Parts& reference, const Parts& candidate,
                           AreTheirs are_theirs) {
  std::map<std::pair<RowSpace::Counts, RowSpace::Counts>, Group> groups;
  for (const auto& [name, tensor] : candidate.begin()->second.tensors) {
    auto sequence = SequenceOf(name, reference, candidate, are_theirs);
    if (!sequence) continue;
    groups[{sequence->reference, sequence->candidate}].sequences.push_back(
        *std::move(sequence));
  }
  std::vector<Group> out;
  for (auto& [counts, group] : groups) out.push_back(std::move(group));
  // What the rows of the batch are: what is cut in the first dimension, and
  // tells most rows apart.
  std::stable_sort(out.begin(), out.end(), [](const Group& a, const Group& b) {
    return std::tuple(a.by_rows(), a.most_distinct()) >
           std::tuple(b.by_rows(), b.most_distinct());
  });
  return out;
}

// Of `data item` sequences the loop's own argument is meant.
bool IsOfItem(const FedName& name) { return name.first.starts_with(kOfItem); }

// Whether the places of rows are those that were meant, although some rows are
// equal. Of tokens or nodes most are, and they are told apart by runs of them.
// Where a run ends, a row may belong to it or to the next: the end of a
// sentence is equal in all of them. If the places on both sides hold it, which
// of them was meant cannot be told.
bool TellsPlaces(const RowKeys& theirs, const RowKeys& own,
                 const std::vector<int64_t>& places) {
  const auto rows = static_cast<int64_t>(own.size());
  int64_t runs = rows > 0 ? 1 : 0;
  for (size_t r = 1; r < places.size(); ++r) {
    if (places[r] == places[r - 1] + 1) continue;
    ++runs;
    const auto behind = static_cast<size_t>(places[r - 1] + 1);
    const auto begin = static_cast<size_t>(places[r]);
    if ((behind < theirs.size() && theirs[behind] == own[r]) ||
        (begin > 0 && theirs[begin - 1] == own[r - 1])) {
      return false;
    }
  }
  return 2 * CountDistinct(own) > rows || rows >= 4 * runs;
}

// Nothing if rows are in another order, and in which cannot be told. `mixed`
// gets arguments whose rows are beside others.
std::optional<RowSpace> SpaceOf(const Group& group, AreTheirs are_theirs,
                                std::vector<std::string>* mixed) {
  std::vector<const Sequence*> matching;
  for (const Sequence& s : group.sequences) {
    if (s.matches) matching.push_back(&s);
  }
  std::stable_sort(matching.begin(), matching.end(),
                   [](const Sequence* a, const Sequence* b) {
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
    if (!TellsPlaces(theirs, own, space.map->to_reference)) {
      return std::nullopt;
    }
  }
  return space;
}

void AddLengths(const Group& group, std::vector<PaddedLength>* lengths) {
  for (const Sequence& s : group.sequences) {
    if (!s.matches || !s.is_padded || !s.by_rows()) continue;
    PaddedLength length;
    length.reference = s.reference_width;
    length.candidate = s.candidate_width;
    length.at_begin = s.at_begin;
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

// Whose rows the candidate has that the reference does not, all tensors of a
// row together.
void NameForeign(const Group& group, const Parts& candidate, RowsOfCall* out) {
  std::vector<const Sequence*> all;
  for (const Sequence& s : group.sequences) {
    if (s.names_rows()) all.push_back(&s);
  }
  if (all.empty()) return;
  RowKeys theirs = all.front()->theirs;
  RowKeys own = all.front()->own;
  for (size_t i = 1; i < all.size(); ++i) {
    theirs = Joined(theirs, all[i]->theirs);
    own = Joined(own, all[i]->own);
  }
  std::map<uint64_t, int64_t> left;
  for (const uint64_t key : theirs) ++left[key];
  std::set<uint64_t> exceeded;
  for (size_t r = 0; r < own.size(); ++r) {
    const auto found = left.find(own[r]);
    if (found == left.end()) {
      out->foreign.push_back(static_cast<int64_t>(r));
    } else if (--found->second < 0) {
      exceeded.insert(own[r]);
    }
  }
  if (exceeded.empty()) return;
  std::set<int> ranks;
  size_t r = 0;
  for (const auto& [micro_batch, count] : all.front()->candidate) {
    const int rank = candidate.at(micro_batch).rank;
    for (int64_t i = 0; i < count; ++i, ++r) {
      if (!exceeded.contains(own[r])) continue;
      out->repeated.rows.push_back(static_cast<int64_t>(r));
      ranks.insert(rank);
    }
  }
  out->repeated.ranks.assign(ranks.begin(), ranks.end());
}

RowsOfCall Match(const Parts& reference, const Parts& candidate,
                 AreTheirs are_theirs) {
  RowsOfCall out;
  if (reference.empty() || candidate.empty()) return out;
  const std::vector<Group> groups = Grouped(reference, candidate, are_theirs);
  std::set<std::string> matched;
  for (const Group& group : groups) {
    for (const Sequence& s : group.sequences) {
      if (s.matches) matched.insert(s.name.first);
    }
  }
  for (const Group& group : groups) {
    for (const Sequence& s : group.sequences) {
      if (s.is_relative && !matched.contains(s.name.first) && s.by_rows()) {
        out.relative.push_back(s.name.first);
      }
    }
  }
  // Arguments that count the rows and hold others, beside what holds the same.
  const auto others = [&](const Group& group) {
    std::vector<std::string> names;
    for (const Sequence& s : group.sequences) {
      if (s.names_rows() && !matched.contains(s.name.first)) {
        names.push_back(s.name.first);
      }
    }
    return names;
  };
  for (const Group& group : groups) {
    if (!group.matches()) continue;
    const auto unlike = others(group);
    // A mask or a class says nothing of whose it is.
    const bool tells = 2 * group.most_distinct() >
                       static_cast<int64_t>(group.sequences.front().own.size());
    if (!unlike.empty() && !tells) {
      NameForeign(group, candidate, &out);
      if (!out.foreign.empty() || !out.repeated.rows.empty()) continue;
    }
    for (const std::string& name : unlike) {
      if (!name.starts_with(kOfItem)) out.other.push_back(name);
    }
    if (auto space = SpaceOf(group, are_theirs, &out.mixed)) {
      out.spaces.push_back(*std::move(space));
    }
    AddLengths(group, &out.lengths);
  }
  // Where rows are counted by nothing that stands first, the batch may lie
  // along another dimension: of all arguments then.
  const bool has_rows =
      std::any_of(groups.begin(), groups.end(),
                  [](const Group& g) { return g.by_rows(); }) ||
      std::all_of(groups.begin(), groups.end(),
                  [&](const Group& group) { return others(group).empty(); });
  if (!has_rows && out.foreign.empty() && out.repeated.rows.empty()) {
    // The largest group: most tensors have their rows first.
    const Group* largest = nullptr;
    for (const Group& group : groups) {
      const auto rows =
          std::count_if(group.sequences.begin(), group.sequences.end(),
                        [](const Sequence& s) { return s.by_rows(); });
      if (rows > 0 && (largest == nullptr ||
                       group.sequences.size() > largest->sequences.size())) {
        largest = &group;
      }
    }
    if (largest != nullptr) NameForeign(*largest, candidate, &out);
  }
  return out;
}

}  // namespace

RowsOfCall MatchCall(const Parts& reference, const Parts& candidate) {
  return Match(reference, candidate, HoldTheSame);
}

RowsOfCall PlaceRows(const Parts& reference, const FedPart& own) {
  RowsOfCall out = Match(reference, {{0, own}}, Contains);
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
