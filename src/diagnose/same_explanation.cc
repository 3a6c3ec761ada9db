#include "src/diagnose/same_explanation.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "src/diagnose/constants.h"
#include "src/experiment/module_names.h"
#include "src/localize/blame.h"

namespace ttrace {
namespace {

bool SameFactor(const Diagnosis& x, const Diagnosis& y) {
  return std::fabs(x.value / y.value - 1) <= kSameFactor;
}

bool Contradict(const Culprit& a, const Culprit& b) {
  if (a.classes.empty() || b.classes.empty()) return false;
  for (const Diagnosis& x : a.classes) {
    for (const Diagnosis& y : b.classes) {
      if (x.bug_class == y.bug_class &&
          (x.bug_class != BugClass::kConstantFactor || SameFactor(x, y))) {
        return false;
      }
    }
  }
  return true;
}

// As `culprit`, of one of its names alone.
Culprit OfName(const Culprit& culprit, const Culprit::Affected::Name& name) {
  Culprit out = culprit;
  out.fqn = name.first.fqn;
  out.tensor = name.first;
  out.headroom = name.headroom;
  out.ranks = name.ranks;
  out.affected.count = name.count;
  out.affected.examples = {name.first.fqn};
  out.affected.names = {name};
  const std::string known = WithoutLayerNumbers(name.first.fqn);
  std::erase_if(out.shown_by, [&](const TensorId& id) {
    return WithoutLayerNumbers(id.fqn) != known;
  });
  return out;
}

// A reduction or a step that is missing, and a loss, hit parameters of any
// name. Anything else is one fault only in the same place of the code.
bool HitsAnyName(BugClass bug_class) {
  switch (bug_class) {
    case BugClass::kMissingPartialSum:
    case BugClass::kReplicasDiffer:
    case BugClass::kMissingOrZero:
    case BugClass::kStaleValue:
    case BugClass::kLossNormalisation:
    case BugClass::kNonFinite:
      return true;
    default:
      return false;
  }
}

bool SameExplanation(const Culprit& a, const Culprit& b) {
  if (!IsParameterRole(a.tensor.role) || a.tensor.role != b.tensor.role ||
      a.direction != b.direction || a.stage != b.stage ||
      a.iteration != b.iteration || a.classes.empty() || b.classes.empty()) {
    return false;
  }
  const Diagnosis& x = a.classes.front();
  const Diagnosis& y = b.classes.front();
  if (x.bug_class != y.bug_class) return false;
  if (x.bug_class == BugClass::kConstantFactor) return SameFactor(x, y);
  return HitsAnyName(x.bug_class) ||
         WithoutLayerNumbers(a.fqn) == WithoutLayerNumbers(b.fqn);
}

void Join(const Culprit& from, Culprit* into) {
  // What dataflow and isolation lay to one culprit is counted in each.
  std::set<std::string> names(into->affected.examples.begin(),
                              into->affected.examples.end());
  const bool counted = std::all_of(
      from.affected.examples.begin(), from.affected.examples.end(),
      [&](const std::string& name) { return names.contains(name); });
  if (!counted && into->affected.count < into->affected.of) {
    into->affected.count =
        std::min(into->affected.of, into->affected.count + from.affected.count);
  }
  for (const std::string& name : from.affected.examples) {
    if (into->affected.examples.size() >= kMostExamples) break;
    if (names.insert(name).second) into->affected.examples.push_back(name);
  }
  AddRanks(from.ranks, into);
  AddShownBy(from.shown_by, into);
  for (const std::string& way : from.found_by) {
    auto& ways = into->found_by;
    if (std::find(ways.begin(), ways.end(), way) == ways.end()) {
      ways.push_back(way);
    }
  }
  std::sort(into->found_by.begin(), into->found_by.end());
}

}  // namespace

std::vector<Culprit> ExplainEachName(
    Culprit culprit, const std::function<void(Culprit*)>& explain) {
  const Culprit whole = culprit;
  explain(&culprit);
  std::vector<Culprit> out;
  Culprit kept = culprit;  // what is left of it if names go
  kept.affected.examples.clear();
  kept.affected.count = 0;
  kept.ranks.clear();
  kept.shown_by.clear();
  for (const Culprit::Affected::Name& name : whole.affected.names) {
    Culprit part = OfName(whole, name);
    if (name.first != whole.tensor) explain(&part);
    const bool apart = name.first != whole.tensor && Contradict(culprit, part);
    const auto into = !apart ? out.end()
                             : std::find_if(out.begin(), out.end(),
                                            [&](const Culprit& known) {
                                              return !Contradict(known, part);
                                            });
    if (!apart) {
      Join(part, &kept);
    } else if (into != out.end()) {
      Join(part, &*into);
    } else {
      out.push_back(std::move(part));
    }
  }
  out.insert(out.begin(), out.empty() ? std::move(culprit) : std::move(kept));
  return out;
}

int JoinSameExplanation(std::vector<Culprit>* culprits) {
  std::vector<Culprit> out;
  for (Culprit& culprit : *culprits) {
    const auto same = std::find_if(
        out.begin(), out.end(),
        [&](const Culprit& known) { return SameExplanation(known, culprit); });
    if (same == out.end()) {
      out.push_back(std::move(culprit));
    } else {
      Join(culprit, &*same);
    }
  }
  const auto joined = static_cast<int>(culprits->size() - out.size());
  *culprits = std::move(out);
  return joined;
}

}  // namespace ttrace
