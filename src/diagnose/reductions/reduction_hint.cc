#include "src/diagnose/reductions/reduction_hint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <variant>

#include "src/base/count_words.h"
#include "src/diagnose/reductions/parameter_sums.h"

namespace ttrace {
namespace {

// "a, b, ..." of a set, in its order.
std::string Examples(const std::set<std::string>& names) {
  constexpr std::ptrdiff_t kShown = 2;
  const auto end = names.size() > static_cast<size_t>(kShown)
                       ? std::next(names.begin(), kShown)
                       : names.end();
  return fmt::format("{}{}", fmt::join(names.begin(), end, ", "),
                     end == names.end() ? "" : ", ...");
}

std::string Ranks(const std::set<int>& ranks) {
  return fmt::format("{{{}}}", fmt::join(ranks, ", "));
}

// The phase in which a module makes the value that is wrong.
std::string PhaseOfModule(const Culprit& culprit) {
  if (culprit.tensor.role == Role::kGradInput) return "backward";
  return culprit.tensor.pass == Pass::kRecompute ? "recompute" : "forward";
}

}  // namespace

ReductionHints::ReductionHints(ReductionEvidence evidence)
    : seen_(std::move(evidence)) {}

std::vector<std::string> ReductionHints::For(const Culprit& culprit) const {
  std::vector<std::string> out;
  for (Sentence& sentence : Sentences(culprit)) {
    out.push_back(std::move(sentence.text));
  }
  return out;
}

std::string ReductionHints::WrongGroup(const Culprit& culprit) const {
  for (Sentence& sentence : Sentences(culprit)) {
    if (sentence.wrong_group) return std::move(sentence.text);
  }
  return "";
}

std::vector<ReductionHints::Sentence> ReductionHints::Sentences(
    const Culprit& culprit) const {
  if (!seen_.IsComplete(culprit.iteration)) return {};
  switch (culprit.tensor.role) {
    case Role::kGradReduced:
      return ForParameter(culprit);
    case Role::kOutput:
    case Role::kGradInput:
      return ForModule(culprit);
    default:
      return {};
  }
}

bool ReductionHints::SumsWereMade(const Culprit& culprit) const {
  const Role role = culprit.tensor.role;
  const auto found = seen_.evidence().tensors->find(culprit.tensor);
  if ((role != Role::kOutput && role != Role::kGradInput) ||
      found == seen_.evidence().tensors->end() ||
      !seen_.IsComplete(culprit.iteration)) {
    return false;
  }
  bool any = false;
  for (const std::string& dim : found->second.pieces.front().reduced_over()) {
    if (!seen_.DimIsShared(dim)) continue;
    const ModuleSums sums =
        FindModuleSums(seen_, culprit.tensor, PhaseOfModule(culprit), dim);
    if (sums.unclear || sums.needed.empty() || !sums.over.empty()) return false;
    for (const auto& [rank, count] : sums.needed) {
      const auto made = sums.made.find(rank);
      if (made == sums.made.end() || made->second < count) return false;
    }
    any = true;
  }
  return any;
}

std::vector<ReductionHints::Sentence> ReductionHints::ForParameter(
    const Culprit& culprit) const {
  const auto& not_seen = seen_.evidence().collectives->not_seen;
  if (not_seen.contains("reduction")) return {};
  const auto gradients = SummedGradients(seen_, culprit.iteration);
  const auto own = gradients.find(culprit.fqn);
  if (own == gradients.end()) return {};

  std::vector<Sentence> out;
  std::vector<std::string> once;  // dimensions along which all is well
  for (const std::string& dim : own->second.dims) {
    const ParameterSum mine = FindParameterSum(seen_, culprit.fqn, own->second,
                                               dim, culprit.iteration);
    if (!mine.needed || mine.unclear) continue;
    if (!mine.over.empty()) {
      const std::string text = fmt::format(
          "reduction: the {} of {} is over ranks {}, its terms are on ranks {}",
          mine.kind, culprit.fqn, Ranks(mine.over), Ranks(mine.terms_on));
      // Of several dimensions that one wrong group is said once.
      if (std::none_of(out.begin(), out.end(),
                       [&](const Sentence& s) { return s.text == text; })) {
        out.push_back({text, true});
      }
      continue;
    }
    if (mine.missing.empty() && mine.times < 2) {
      once.push_back(dim);
      continue;
    }
    // How many others are like it.
    int64_t of = 0;
    std::set<std::string> alike;
    for (const auto& [fqn, gradient] : gradients) {
      if (!gradient.dims.contains(dim)) continue;
      const ParameterSum its =
          FindParameterSum(seen_, fqn, gradient, dim, culprit.iteration);
      if (!its.needed || its.unclear) continue;
      ++of;
      if (its.missing.empty() == mine.missing.empty() &&
          (!mine.missing.empty() || its.times == mine.times)) {
        alike.insert(fqn);
      }
    }
    const int64_t n = static_cast<int64_t>(alike.size());
    if (!mine.missing.empty()) {
      out.push_back({fmt::format(
          "reduction: 0 reductions over {} seen for {} of {} that need one "
          "({}){}",
          dim, n, Counted(of, "parameter"), Examples(alike),
          Attributes(alike))});
    } else {
      out.push_back({fmt::format(
          "reduction: {} {}s over {} seen where 1 is expected, for {} of {} "
          "({}){}",
          mine.times, mine.kind, dim, n, Counted(of, "parameter"),
          Examples(alike), Attributes(alike))});
    }
  }
  if (out.empty() && !once.empty()) {
    std::string attributes =
        AttributesOfBuckets(culprit.fqn, culprit.iteration);
    if (!attributes.empty()) {
      out.push_back({fmt::format(
          "reduction: the gradient of {} was reduced once over {}, as it has "
          "to be{}",
          culprit.fqn, fmt::join(once, " and over "), attributes)});
    }
  }
  return out;
}

std::vector<ReductionHints::Sentence> ReductionHints::ForModule(
    const Culprit& culprit) const {
  const auto found = seen_.evidence().tensors->find(culprit.tensor);
  if (found == seen_.evidence().tensors->end()) return {};
  const Record& any = found->second.pieces.front();
  const std::string phase = PhaseOfModule(culprit);
  if (seen_.evidence().collectives->not_seen.contains(phase)) return {};
  std::vector<Sentence> out;
  for (const std::string& dim : any.reduced_over()) {
    // Where no module was ever seen to communicate, traffic may run where
    // nobody looks (fused kernels).
    if (!seen_.DimIsShared(dim) || !seen_.ModulesUse(dim)) continue;
    // A value that is cut along the dimension is summed while it is cut.
    const bool cut =
        std::any_of(any.placements().begin(), any.placements().end(),
                    [&](const auto& word) {
                      return word.first == dim &&
                             !std::holds_alternative<Replicate>(word.second);
                    });
    Sentence sentence =
        Describe(FindModuleSums(seen_, culprit.tensor, phase, dim), dim, cut);
    if (!sentence.text.empty()) {
      sentence.text =
          fmt::format("{} of {}: {}", phase, culprit.tensor.fqn, sentence.text);
      out.push_back(std::move(sentence));
    }
  }
  return out;
}

// Empty where there is nothing to say.
ReductionHints::Sentence ReductionHints::Describe(const ModuleSums& sums,
                                                  const std::string& dim,
                                                  bool cut) {
  if (sums.unclear || sums.needed.empty()) return {};
  std::set<int> none;
  bool twice = sums.all_fit;
  bool too_few = false;
  for (const auto& [rank, count] : sums.needed) {
    const auto made = sums.made.find(rank);
    if (made == sums.made.end()) none.insert(rank);
    twice &= made != sums.made.end() && made->second == 2 * count;
    too_few |= made == sums.made.end() || made->second < count;
  }
  if (twice) {
    return {fmt::format("2 {}s over {} seen for each value where 1 is expected",
                        sums.kind, dim)};
  }
  if (too_few && !sums.over.empty()) {
    return {fmt::format("{} {} is over ranks {}, the terms are on ranks {}",
                        none.empty() ? "one" : "the", sums.kind,
                        Ranks(sums.over), Ranks(sums.terms_on)),
            true};
  }
  if (none.empty()) return {};
  return {fmt::format(
      "no {} over {} seen on rank{} {}, where each holds a term of a sum",
      cut ? "reduce_scatter" : "all_reduce", dim, none.size() == 1 ? "" : "s",
      fmt::join(none, ", "))};
}

std::string ReductionHints::Attributes(
    const std::set<std::string>& fqns) const {
  // (name, value, expected) -> how many of these parameters.
  std::map<std::tuple<std::string, std::string, std::string>,
           std::set<std::string>>
      found;
  for (const Attribute& a : *seen_.evidence().attributes) {
    if (fqns.contains(a.fqn)) {
      found[{a.name, a.value, a.expected}].insert(a.fqn);
    }
  }
  std::string out;
  for (const auto& [what, names] : found) {
    const auto& [name, value, expected] = what;
    out += fmt::format("; attribute {} is {}, expected {}, on {} of them", name,
                       value, expected, names.size());
  }
  return out;
}

// Attributes of the parameter, and of the bucket that it is reduced in, which
// goes by the name of its first parameter.
std::string ReductionHints::AttributesOfBuckets(const std::string& fqn,
                                                int iteration) const {
  std::set<std::string> beside;
  for (const Collective& c : seen_.evidence().collectives->seen) {
    if (c.iteration == iteration &&
        std::find(c.parameters.begin(), c.parameters.end(), fqn) !=
            c.parameters.end()) {
      beside.insert(c.parameters.begin(), c.parameters.end());
    }
  }
  std::string out;
  std::set<std::string> said;
  for (const Attribute& a : *seen_.evidence().attributes) {
    if (a.fqn != fqn && !(a.of_bucket && beside.contains(a.fqn))) continue;
    const std::string text = fmt::format("; attribute {} is {}, expected {}",
                                         a.name, a.value, a.expected);
    if (said.insert(text).second) out += text;
  }
  return out;
}

}  // namespace ttrace
