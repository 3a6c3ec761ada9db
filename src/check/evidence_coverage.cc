#include "src/check/evidence_coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "src/base/count_words.h"
#include "src/experiment/module_names.h"
#include "src/experiment/parameter_roles.h"
#include "src/judge/reason_words.h"

namespace ttrace {
namespace {

bool IsComputed(Role role) {
  switch (role) {
    case Role::kOutput:
    case Role::kGradOutput:
    case Role::kGradInput:
    case Role::kGradLocal:
    case Role::kGradReduced:
    case Role::kLoss:
      return true;
    default:
      return false;
  }
}

// Whether it has to be judged at all.
bool IsAsked(const TensorJudgement& t) {
  return IsComputed(t.id.role) && !t.excused &&
         t.verdict != TensorVerdict::kUnmatched;
}

// What a module makes itself: values that arrive at it were made elsewhere.
bool IsMade(Role role) { return IsComputed(role) && role != Role::kGradOutput; }

std::string ModuleOf(const TensorId& id) {
  return IsParameterGradient(id.role) ? ParentName(id.fqn) : id.fqn;
}

// "grad_reduced of ColumnParallelLinear" and "weight". Where the class of a
// module is not known, its name without layer numbers stands for it.
struct Kind {
  std::string family;
  std::string part;  // parameter or argument
  auto operator<=>(const Kind&) const = default;
};

Kind KindOf(const Side& classes, const TensorId& id) {
  const bool parameter = IsParameterGradient(id.role);
  const std::string module = ModuleOf(id);
  std::string cls = classes.facts().ClassOf(module);
  if (cls.empty()) cls = WithoutLayerNumbers(module);
  if (cls.empty()) cls = "the model";
  return {fmt::format("{} of {}", ToString(id.role), cls),
          parameter ? id.fqn.substr(module.empty() ? 0 : module.size() + 1)
                    : id.arg};
}

// Tensors of one kind, or of one module.
struct EvidenceCount {
  int64_t of = 0;
  bool judged = false;
  bool all_zero = true;
  const TensorJudgement* open = nullptr;  // the first that was not judged

  void Add(const TensorJudgement& t);
};

bool IsJudged(const TensorJudgement& t) {
  return !t.all_zero &&
         (t.verdict != TensorVerdict::kNotCheckable || t.judged_isolated());
}

void EvidenceCount::Add(const TensorJudgement& t) {
  ++of;
  judged |= IsJudged(t);
  all_zero &= t.all_zero;
  if (!IsJudged(t) && !t.all_zero && open == nullptr) open = &t;
}

int64_t Elements(const TensorJudgement& t) {
  return t.legs.empty() ? 0 : t.legs.front().stats.count;
}

// Both sides have it, and it has no element: nothing in it can be wrong, and
// nothing of it was compared. Not an expert without tokens, which has elements
// in other iterations.
bool IsEmpty(const TensorJudgement& t) {
  return t.verdict == TensorVerdict::kBitwiseEqual && !t.all_zero &&
         !t.legs.empty() &&
         std::all_of(t.legs.begin(), t.legs.end(), [](const LegJudgement& leg) {
           return leg.stats.count == 0;
         });
}

// Modules that return nothing but tensors without elements, in every call.
// Whatever goes in, no loss depends on it by them.
std::set<std::string> WithoutOutput(
    const std::vector<TensorJudgement>& tensors) {
  std::set<std::string> empty;
  std::set<std::string> others;
  for (const TensorJudgement& t : tensors) {
    if (t.id.role != Role::kOutput) continue;
    (IsEmpty(t) ? empty : others).insert(t.id.fqn);
  }
  for (const std::string& name : others) empty.erase(name);
  return empty;
}

// A loss, as the loss function or the model itself returns it. It is one
// number, of which a few legs of noise say little in low precision.
bool IsLoss(const TensorJudgement& t) {
  return t.id.role == Role::kLoss ||
         (t.id.fqn.empty() && Elements(t) == 1 && t.id.role == Role::kOutput);
}

// What is wrong with how a loss is made is in the gradients, too; not in its
// own, which is a constant.
bool GradientOfLossIsJudged(const std::vector<TensorJudgement>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const TensorJudgement& t) {
                       return t.id.role == Role::kGradOutput &&
                              Elements(t) > 1 && IsAsked(t) && IsJudged(t);
                     });
}

RunNote NoEvidence(const std::string& values, int64_t count,
                   const std::string& why) {
  return {NoteKind::kNoEvidence,
          fmt::format("no {} can be judged ({} of them){}{}", values, count,
                      why.empty() ? "" : ": ", why),
          ""};
}

RunNote ZeroEvidence(const std::string& values, int64_t count) {
  return {NoteKind::kZeroEvidence,
          fmt::format("every {} is zero or not finite in the reference ({} of "
                      "them): nothing wrong would show in them",
                      values, count),
          ""};
}

// A fault of these modules would have to be seen in others, or not at all.
std::optional<RunNote> UnjudgedModules(
    const std::map<std::string, EvidenceCount>& modules) {
  int64_t more = -1;
  int64_t count = 0;
  std::string first;
  std::string why;
  for (const auto& [name, module] : modules) {
    if (module.judged || module.all_zero) continue;
    count += module.of;
    if (++more > 0) continue;
    first = name.empty() ? "the model" : name;
    why = ReasonWords(module.open->reason);
  }
  if (more < 0) return std::nullopt;
  return NoEvidence(more == 0 ? fmt::format("tensor of {}", first)
                              : fmt::format("tensor of {} and {}", first,
                                            Counted(more, "more module")),
                    count, why);
}

}  // namespace

EvidenceCoverage CoverEvidence(const Side& classes,
                               const std::vector<TensorJudgement>& tensors) {
  std::map<Kind, EvidenceCount> kinds;
  // Families of values, not of parameters' gradients, with one that is judged.
  std::set<std::string> judged;
  std::map<std::string, EvidenceCount> modules;
  const bool loss_by_gradient = GradientOfLossIsJudged(tensors);
  const std::set<std::string> without_output = WithoutOutput(tensors);
  for (const TensorJudgement& t : tensors) {
    if (IsEmpty(t)) continue;
    // Of the model's own inputs no parameter of it is made.
    if (t.all_zero && t.id.role == Role::kGradInput &&
        (t.id.fqn.empty() || without_output.contains(t.id.fqn))) {
      continue;
    }
    if (IsLoss(t) && loss_by_gradient && !IsJudged(t)) continue;
    if (!IsAsked(t)) continue;
    const Kind kind = KindOf(classes, t.id);
    kinds[kind].Add(t);
    if (IsJudged(t) && !IsParameterGradient(t.id.role)) {
      judged.insert(kind.family);
    }
    if (IsMade(t.id.role)) modules[ModuleOf(t.id)].Add(t);
  }
  EvidenceCoverage out;
  for (const auto& [name, kind] : kinds) {
    out.any |= kind.judged;
    if (kind.judged) continue;
    // One of several results may be zero on purpose, as an offset that is not
    // used; others show what the module computes.
    if (kind.all_zero && judged.contains(name.family)) continue;
    const std::string values = fmt::format("{} {}", name.family, name.part);
    out.missing.push_back(
        kind.all_zero
            ? ZeroEvidence(values, kind.of)
            : NoEvidence(values, kind.of, ReasonWords(kind.open->reason)));
  }
  if (auto note = UnjudgedModules(modules)) {
    out.missing.push_back(*std::move(note));
  }
  return out;
}

}  // namespace ttrace
