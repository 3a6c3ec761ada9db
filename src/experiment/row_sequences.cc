#include "src/experiment/row_sequences.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

using Parts = FedRows::Parts;

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
    const RowDigests& of = tensor.digests;
    const auto or_whole = [&](const RowKeys& rest) -> const RowKeys& {
      return rest.size() == of.whole.size() ? rest : of.whole;
    };
    add(or_whole(of.without_end), &digests->without_end);
    add(or_whole(of.without_begin), &digests->without_begin);
    add(or_whole(of.cut_end), &digests->cut_end);
    add(or_whole(of.cut_begin), &digests->cut_begin);
    (*counts)[micro_batch] = tensor.rows;
    (*widths)[micro_batch] = tensor.width;
  }
  return true;
}

// `likely`: the padding that is tried first.
std::optional<RowSequence> SequenceOf(const FedName& name,
                                      const Parts& reference,
                                      const Parts& candidate,
                                      AreTheirs are_theirs, Padding likely) {
  RowSequence out;
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
  const Padding paddings[] = {likely,
                              {.at_begin = false, .cut = false},
                              {.at_begin = true, .cut = false},
                              {.at_begin = false, .cut = true},
                              {.at_begin = true, .cut = true}};
  // Where none makes all rows the reference's, that by which most are.
  size_t most = out.is_padded ? CountFound(theirs.whole, own.whole) : 0;
  for (const Padding& padding : paddings) {
    if (!out.is_padded) break;
    if (&padding != paddings && padding == likely) continue;  // tried
    PaddedKeys keys = KeysWithoutPadding(theirs, own, padding);
    const bool all = are_theirs(keys.theirs, keys.own);
    const size_t found = CountFound(keys.theirs, keys.own);
    if (!all && found <= most) continue;
    most = found;
    out.theirs = std::move(keys.theirs);
    out.own = std::move(keys.own);
    out.padding = padding;
    if (all) break;
  }
  out.matches = are_theirs(out.theirs, out.own);
  return out;
}

// What the items of a list hold is no rows of its own, where the items are.
void LeaveOutListed(std::vector<RowSequence>* all) {
  std::vector<std::string> lists;
  for (const RowSequence& s : *all) {
    const auto& [name, dim] = s.name;
    // An item itself is a tuple of inputs and targets.
    if (dim == kListDim && s.matches && !name.empty() && name != kOfItem) {
      lists.push_back(name + ".");
    }
  }
  std::erase_if(*all, [&](const RowSequence& s) {
    return std::any_of(lists.begin(), lists.end(),
                       [&](const std::string& list) {
                         return s.name.first.starts_with(list);
                       });
  });
}

// Columns of rows that are padded count their length, whatever stands in them:
// in batches that are the same in both runs they are the same, too, and no
// rows.
void LeaveOutColumns(std::vector<RowSequence>* all) {
  std::set<std::pair<RowSpace::Counts, RowSpace::Counts>> lengths;
  for (const RowSequence& s : *all) {
    if (s.name.second == 0 && s.matches && s.is_padded) {
      lengths.emplace(s.reference_width, s.candidate_width);
    }
  }
  std::erase_if(*all, [&](const RowSequence& s) {
    return s.name.second > 0 && lengths.contains({s.reference, s.candidate});
  });
}

// Padding is on one side of a row, whatever holds it. A mask may match either
// way: it is padded as the texts are, with which most others match.
void AgreeOnPadding(const Parts& reference, const Parts& candidate,
                    AreTheirs are_theirs, std::vector<RowSequence>* all) {
  const auto is_padded = [](const RowSequence& s) {
    return s.is_padded && s.matches;
  };
  std::vector<Padding> chosen;
  for (const RowSequence& s : *all) {
    if (is_padded(s) &&
        std::find(chosen.begin(), chosen.end(), s.padding) == chosen.end()) {
      chosen.push_back(s.padding);
    }
  }
  if (chosen.size() < 2) return;
  std::vector<RowSequence> best;
  std::ptrdiff_t most = 0;
  for (const Padding likely : chosen) {
    std::vector<RowSequence> tried = *all;
    for (RowSequence& s : tried) {
      if (!is_padded(s) || s.padding == likely) continue;
      s = *SequenceOf(s.name, reference, candidate, are_theirs, likely);
    }
    const auto agree =
        std::count_if(tried.begin(), tried.end(), [&](const RowSequence& s) {
          return is_padded(s) && s.padding == likely;
        });
    if (agree <= most) continue;
    most = agree;
    best = std::move(tried);
  }
  *all = std::move(best);
}

// Rows that are alike once their padding is cut may be nothing but padding, as
// the layers of a state of zeros are: where nothing else counts the same they
// are no rows that match.
void LeaveOutBlank(std::vector<RowSequence>* all) {
  const auto is_blank = [](const RowSequence& s) {
    return s.is_padded && s.theirs.size() > 1 && CountDistinct(s.theirs) == 1;
  };
  std::set<std::pair<RowSpace::Counts, RowSpace::Counts>> told;
  for (const RowSequence& s : *all) {
    if (s.matches && !is_blank(s)) told.emplace(s.reference, s.candidate);
  }
  for (RowSequence& s : *all) {
    if (is_blank(s) && !told.contains({s.reference, s.candidate})) {
      s.matches = false;
    }
  }
}

}  // namespace

bool IsOfItem(const FedName& name) { return name.first.starts_with(kOfItem); }

std::vector<RowGroup> GroupSequences(const Parts& reference,
                                     const Parts& candidate,
                                     AreTheirs are_theirs) {
  std::vector<RowSequence> all;
  for (const auto& [name, tensor] : candidate.begin()->second.tensors) {
    auto sequence = SequenceOf(name, reference, candidate, are_theirs, {});
    if (!sequence) continue;
    all.push_back(*std::move(sequence));
  }
  LeaveOutBlank(&all);
  AgreeOnPadding(reference, candidate, are_theirs, &all);
  LeaveOutListed(&all);
  LeaveOutColumns(&all);
  std::map<std::pair<RowSpace::Counts, RowSpace::Counts>, RowGroup> groups;
  for (RowSequence& sequence : all) {
    groups[{sequence.reference, sequence.candidate}].sequences.push_back(
        std::move(sequence));
  }
  std::vector<RowGroup> out;
  for (auto& [counts, group] : groups) out.push_back(std::move(group));
  // What the rows of the batch are: what is cut in the first dimension, and
  // tells most rows apart.
  std::stable_sort(out.begin(), out.end(),
                   [](const RowGroup& a, const RowGroup& b) {
                     return std::tuple(a.by_rows(), a.most_distinct()) >
                            std::tuple(b.by_rows(), b.most_distinct());
                   });
  return out;
}

}  // namespace ttrace
