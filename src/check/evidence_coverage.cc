#include "src/check/evidence_coverage.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "src/experiment/module_names.h"
#include "src/experiment/parameter_roles.h"
#include "src/report/reason_words.h"

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

// "grad_reduced of ColumnParallelLinear weight". Where the class of a module is
// not known, its name without layer numbers stands for it.
std::string KindOf(const Side& classes, const TensorId& id) {
  const bool parameter = IsParameterGradient(id.role);
  const std::string module = parameter ? ParentName(id.fqn) : id.fqn;
  std::string cls = classes.ClassOf(module);
  if (cls.empty()) cls = WithoutLayerNumbers(module);
  if (cls.empty()) cls = "the model";
  const std::string part =
      parameter ? id.fqn.substr(module.empty() ? 0 : module.size() + 1)
                : id.arg;
  return fmt::format("{} of {} {}", ToString(id.role), cls, part);
}

struct Kind {
  int64_t of = 0;
  bool judged = false;
  bool all_zero = true;
  const TensorJudgement* open = nullptr;  // the first that was not judged
};

bool IsJudged(const TensorJudgement& t) {
  return !t.all_zero &&
         (t.verdict != TensorVerdict::kNotCheckable || t.judged_alone());
}

}  // namespace

EvidenceCoverage CoverEvidence(const Side& classes,
                               const std::vector<TensorJudgement>& tensors) {
  std::map<std::string, Kind> kinds;
  for (const TensorJudgement& t : tensors) {
    if (!IsComputed(t.id.role) || t.explained ||
        t.verdict == TensorVerdict::kUnmatched) {
      continue;
    }
    Kind& kind = kinds[KindOf(classes, t.id)];
    ++kind.of;
    kind.judged |= IsJudged(t);
    kind.all_zero &= t.all_zero;
    if (!IsJudged(t) && kind.open == nullptr) kind.open = &t;
  }
  EvidenceCoverage out;
  for (const auto& [name, kind] : kinds) {
    out.any |= kind.judged;
    if (kind.judged) continue;
    RunNote note;
    note.kind = kind.all_zero ? NoteKind::kZeroEvidence : NoteKind::kNoEvidence;
    note.names = {name};
    note.count = kind.of;
    if (!kind.all_zero) note.reason = ReasonWords(kind.open->reason);
    out.missing.push_back(std::move(note));
  }
  return out;
}

}  // namespace ttrace
