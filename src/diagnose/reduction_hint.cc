#include "src/diagnose/reduction_hint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <variant>

namespace ttrace {
namespace {

int64_t Elements(const Record& record) {
  int64_t n = 1;
  for (const int64_t size : record.local_shape) n *= size;
  return n;
}

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

bool IsForward(const Collective& c) {
  return c.phase == "forward" || c.phase == "recompute";
}

// Whether `fqn` is `module` or lies in it.
bool IsIn(const std::string& fqn, const std::string& module) {
  return module.empty() || fqn == module || fqn.starts_with(module + ".");
}

std::string Plural(int64_t n, const std::string& noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

// The phase in which a module makes the value that is wrong.
std::string PhaseOfModule(const Culprit& culprit) {
  if (culprit.tensor.role == Role::kGradInput) return "backward";
  return culprit.tensor.pass == Pass::kRecompute ? "recompute" : "forward";
}

}  // namespace

// What was seen of one parameter's sum over one mesh dimension.
struct ReductionHints::Finding {
  bool needed = false;           // more than one rank holds a term
  bool unclear = false;          // an unnamed collective may have made the sum
  int64_t times = 0;             // the most that one rank made the same sum
  std::string kind;              // of a collective that concerns it
  std::set<int> missing;         // ranks that took part in none
  std::set<int> over, terms_on;  // set where a group is not the right one
};

// What a module's values of one role need and what was seen of it.
struct ReductionHints::ModuleSums {
  // Values that each rank holds and that have to be summed: each micro-batch,
  // use and argument for itself. Rank -> how many.
  std::map<int, int64_t> needed;
  std::set<std::string> dims;              // all that they are summed over
  std::map<int, std::set<int64_t>> sizes;  // rank -> their elements
  std::map<int, int64_t> made;             // rank -> sums seen
  bool all_fit = true;                     // each of the size of a value
  bool unclear = false;
  std::string kind;              // of a sum that was seen
  std::set<int> over, terms_on;  // set where one is over other ranks
};

ReductionHints::ReductionHints(ReductionEvidence evidence)
    : evidence_(std::move(evidence)) {
  for (const Collective& c : evidence_.collectives->seen) {
    seen_[{c.rank, c.iteration}].push_back(&c);
  }
  for (const auto& [id, pieces] : *evidence_.tensors) {
    if (id.role != Role::kParam && id.role != Role::kParamUpdated) continue;
    for (const Record* piece : pieces.pieces) {
      parameter_ranks_[id.fqn].insert(piece->rank);
    }
  }
}

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
  if (!IsComplete(culprit.iteration)) return {};
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
  const auto found = evidence_.tensors->find(culprit.tensor);
  if ((role != Role::kOutput && role != Role::kGradInput) ||
      found == evidence_.tensors->end() || !IsComplete(culprit.iteration)) {
    return false;
  }
  bool any = false;
  for (const std::string& dim : found->second.pieces.front()->reduced_over) {
    if (!DimIsShared(dim)) continue;
    const ModuleSums sums = SumsOf(culprit.tensor, PhaseOfModule(culprit), dim);
    if (sums.unclear || sums.needed.empty() || !sums.over.empty()) return false;
    for (const auto& [rank, count] : sums.needed) {
      const auto made = sums.made.find(rank);
      if (made == sums.made.end() || made->second < count) return false;
    }
    any = true;
  }
  return any;
}

bool ReductionHints::IsComplete(int iteration) const {
  size_t ranks = 1;
  for (const MeshDim& dim : evidence_.mesh->dims) {
    ranks *= static_cast<size_t>(dim.size);
  }
  if (evidence_.coordinates.size() != ranks) return false;
  return std::all_of(evidence_.coordinates.begin(), evidence_.coordinates.end(),
                     [&](const auto& rank) {
                       return rank.second.size() ==
                                  evidence_.mesh->dims.size() &&
                              evidence_.collectives->complete.contains(
                                  {rank.first, iteration});
                     });
}

bool ReductionHints::DimIsShared(const std::string& dim) const {
  const int at = evidence_.mesh->Find(dim);
  return at >= 0 && evidence_.mesh->dims[static_cast<size_t>(at)].size > 1;
}

// REQUIRES: IsComplete, so that every rank of the mesh has a coordinate.
bool ReductionHints::Varies(const std::vector<int>& ranks,
                            const std::string& dim) const {
  const int at = evidence_.mesh->Find(dim);
  std::set<int> places;
  for (const int rank : ranks) {
    const auto found = evidence_.coordinates.find(rank);
    if (at >= 0 && found != evidence_.coordinates.end()) {
      places.insert(found->second[static_cast<size_t>(at)]);
    }
  }
  return places.size() > 1;
}

// Whether two ranks differ in nothing but `dims`.
bool ReductionHints::OnOneLine(int a, int b,
                               const std::set<std::string>& dims) const {
  const auto& mesh = evidence_.mesh->dims;
  const Coordinate& x = evidence_.coordinates.at(a);
  const auto found = evidence_.coordinates.find(b);
  if (found == evidence_.coordinates.end()) return false;
  for (size_t i = 0; i < mesh.size(); ++i) {
    if (x[i] != found->second[i] && !dims.contains(mesh[i].name)) return false;
  }
  return true;
}

std::map<std::string, ReductionHints::Gradient> ReductionHints::Gradients(
    int iteration) const {
  std::map<std::string, Gradient> out;
  // Local gradients only where nobody recorded reduced ones (a distributed
  // optimizer owns but a part of them).
  for (const Role role : {Role::kGradReduced, Role::kGradLocal}) {
    std::map<std::string, Gradient> found;
    for (const auto& [id, pieces] : *evidence_.tensors) {
      if (id.role != role || id.iteration != iteration) continue;
      Gradient& gradient = found[id.fqn];
      for (const Record* piece : pieces.pieces) {
        const auto ranks = parameter_ranks_.find(id.fqn);
        // A stage without the tied weight contributes a zero term, and takes
        // part in no sum.
        if (ranks != parameter_ranks_.end() &&
            !ranks->second.contains(piece->rank)) {
          continue;
        }
        gradient.holders[piece->rank] = Elements(*piece);
        for (const std::string& dim : piece->reduced_over) {
          if (DimIsShared(dim)) gradient.dims.insert(dim);
        }
        for (const auto& [dim, placement] : piece->placements) {
          if (std::holds_alternative<Partial>(placement) && DimIsShared(dim)) {
            gradient.dims.insert(dim);
          }
        }
      }
    }
    out.merge(found);
  }
  return out;
}

ReductionHints::Finding ReductionHints::Judge(const std::string& fqn,
                                              const Gradient& gradient,
                                              const std::string& dim,
                                              int iteration) const {
  Finding out;
  for (const auto& [rank, elements] : gradient.holders) {
    std::set<int> along_dim, along_all;  // other holders, and this one
    for (const auto& [other, unused] : gradient.holders) {
      if (OnOneLine(rank, other, {dim})) along_dim.insert(other);
      if (OnOneLine(rank, other, gradient.dims)) along_all.insert(other);
    }
    if (along_dim.size() < 2) continue;
    out.needed = true;
    std::map<std::vector<int>, int64_t> groups;  // that vary along dim
    std::set<int> reached;
    const auto all = seen_.find({rank, iteration});
    if (all != seen_.end()) {
      for (const Collective* c : all->second) {
        if (!c->Sums() || IsForward(*c) || c->phase == "optimizer") continue;
        const bool along = Varies(c->members, dim);
        if (c->parameters.empty()) {
          // An activation's gradient is summed in the backward.
          out.unclear |=
              along && c->phase != "backward" && c->elements >= elements;
          continue;
        }
        if (std::find(c->parameters.begin(), c->parameters.end(), fqn) ==
            c->parameters.end()) {
          continue;
        }
        reached.insert(c->members.begin(), c->members.end());
        if (along || c->members.size() > 1) out.kind = c->kind;
        if (along) out.times = std::max(out.times, ++groups[c->members]);
      }
    }
    const bool foreign = !std::includes(along_all.begin(), along_all.end(),
                                        reached.begin(), reached.end());
    // Two groups along one dimension are a sum in stages, and reach further
    // than one rank's own groups tell.
    const bool short_of = groups.size() == 1 &&
                          !std::includes(reached.begin(), reached.end(),
                                         along_dim.begin(), along_dim.end());
    if ((foreign || short_of) && out.over.empty()) {
      out.over = reached;
      out.terms_on = foreign ? along_all : along_dim;
    }
    if (groups.empty()) out.missing.insert(rank);
  }
  return out;
}

std::vector<ReductionHints::Sentence> ReductionHints::ForParameter(
    const Culprit& culprit) const {
  const auto& not_seen = evidence_.collectives->not_seen;
  if (not_seen.contains("reduction")) return {};
  const auto gradients = Gradients(culprit.iteration);
  const auto own = gradients.find(culprit.fqn);
  if (own == gradients.end()) return {};

  std::vector<Sentence> out;
  std::vector<std::string> once;  // dimensions along which all is well
  for (const std::string& dim : own->second.dims) {
    const Finding mine =
        Judge(culprit.fqn, own->second, dim, culprit.iteration);
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
      const Finding its = Judge(fqn, gradient, dim, culprit.iteration);
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
          dim, n, Plural(of, "parameter"), Examples(alike),
          Attributes(alike))});
    } else {
      out.push_back({fmt::format(
          "reduction: {} {}s over {} seen where 1 is expected, for {} of {} "
          "({}){}",
          mine.times, mine.kind, dim, n, Plural(of, "parameter"),
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
  const auto found = evidence_.tensors->find(culprit.tensor);
  if (found == evidence_.tensors->end()) return {};
  const Record& any = *found->second.pieces.front();
  const std::string phase = PhaseOfModule(culprit);
  if (evidence_.collectives->not_seen.contains(phase)) return {};
  std::vector<Sentence> out;
  for (const std::string& dim : any.reduced_over) {
    if (!DimIsShared(dim) || !ModulesUse(dim)) continue;
    // A value that is cut along the dimension is summed while it is cut.
    const bool cut = std::any_of(
        any.placements.begin(), any.placements.end(), [&](const auto& word) {
          return word.first == dim &&
                 !std::holds_alternative<Replicate>(word.second);
        });
    Sentence sentence = Describe(SumsOf(culprit.tensor, phase, dim), dim, cut);
    if (!sentence.text.empty()) {
      sentence.text =
          fmt::format("{} of {}: {}", phase, culprit.tensor.fqn, sentence.text);
      out.push_back(std::move(sentence));
    }
  }
  return out;
}

// A dimension along which no module was ever seen to communicate is one whose
// traffic may run where nobody looks (fused kernels).
bool ReductionHints::ModulesUse(const std::string& dim) const {
  return std::any_of(evidence_.collectives->seen.begin(),
                     evidence_.collectives->seen.end(),
                     [&](const Collective& c) {
                       return !c.fqn.empty() && Varies(c.members, dim);
                     });
}

ReductionHints::ModuleSums ReductionHints::SumsOf(
    const TensorId& of, const std::string& phase,
    const std::string& dim) const {
  ModuleSums out;
  for (const auto& [id, pieces] : *evidence_.tensors) {
    if (id.fqn != of.fqn || id.role != of.role || id.pass != of.pass ||
        id.iteration != of.iteration) {
      continue;
    }
    for (const Record* piece : pieces.pieces) {
      const auto& over = piece->reduced_over;
      if (std::find(over.begin(), over.end(), dim) == over.end()) continue;
      ++out.needed[piece->rank];
      out.dims.insert(over.begin(), over.end());
      out.sizes[piece->rank].insert(Elements(*piece));
    }
  }
  for (const auto& [rank, count] : out.needed) {
    const auto all = seen_.find({rank, of.iteration});
    if (all == seen_.end()) continue;
    for (const Collective* c : all->second) {
      if (c->phase == phase) Count(*c, of.fqn, dim, &out);
    }
  }
  return out;
}

void ReductionHints::Count(const Collective& c, const std::string& module,
                           const std::string& dim, ModuleSums* sums) const {
  const bool here = IsIn(c.fqn, module);
  const bool along = Varies(c.members, dim);
  // A reduce_scatter is given the terms of all, and leaves one's own part.
  const int64_t share =
      c.kind == "reduce_scatter"
          ? c.elements / static_cast<int64_t>(c.members.size())
          : c.elements;
  const bool fits = sums->sizes[c.rank].contains(share);
  // Ranks that hold no term of this value: they have other data.
  const bool foreign = std::any_of(
      c.members.begin(), c.members.end(),
      [&](int member) { return !OnOneLine(c.rank, member, sums->dims); });
  if (!c.Sums()) {
    // A ring of sends or an exchange may carry the sum.
    sums->unclear |= here && along && c.kind != "all_gather";
  } else if (!here) {
    // So may a sum that a container makes.
    sums->unclear |= fits && along && IsIn(module, c.fqn);
  } else if (along && !(fits && foreign)) {
    ++sums->made[c.rank];
    sums->kind = c.kind;
    sums->all_fit &= fits;
  } else if (fits && c.members.size() > 1 && sums->over.empty()) {
    sums->kind = c.kind;
    sums->over.insert(c.members.begin(), c.members.end());
    for (const auto& [holder, unused] : sums->needed) {
      if (OnOneLine(c.rank, holder, {dim})) sums->terms_on.insert(holder);
    }
  }
}

// Empty where there is nothing to say.
ReductionHints::Sentence ReductionHints::Describe(const ModuleSums& sums,
                                                  const std::string& dim,
                                                  bool cut) const {
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
  for (const Attribute& a : *evidence_.attributes) {
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
  for (const Collective& c : evidence_.collectives->seen) {
    if (c.iteration == iteration &&
        std::find(c.parameters.begin(), c.parameters.end(), fqn) !=
            c.parameters.end()) {
      beside.insert(c.parameters.begin(), c.parameters.end());
    }
  }
  std::string out;
  std::set<std::string> said;
  for (const Attribute& a : *evidence_.attributes) {
    if (a.fqn != fqn && !(a.of_bucket && beside.contains(a.fqn))) continue;
    const std::string text = fmt::format("; attribute {} is {}, expected {}",
                                         a.name, a.value, a.expected);
    if (said.insert(text).second) out += text;
  }
  return out;
}

}  // namespace ttrace
