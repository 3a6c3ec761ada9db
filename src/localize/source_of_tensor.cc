#include "src/localize/source_of_tensor.h"

#include <fmt/format.h>

#include <string_view>

namespace ttrace {
namespace {

// What the step makes, whoever is to blame for it.
bool IsOfStep(Role role) {
  return role == Role::kGradNorm || role == Role::kParamUpdated ||
         role == Role::kOptimState;
}

// The loss and its gradient are named "loss", as a module of the model may be:
// there is none if the nearest one is the model itself.
bool IsOfLoss(const SourceLines& lines, Role role, const std::string& name) {
  return role == Role::kLoss ||
         (name == "loss" && lines.OfModule(name) == lines.OfModule(""));
}

SourcePlace OfCall(const SourceLines& lines, const char* what,
                   std::string_view words) {
  const SourceLine* line = lines.OfCall(what);
  if (line == nullptr) return {};
  return {line->file, line->line,
          fmt::format("{}:{}, {}", line->file, line->line, words)};
}

// A step is made where the loop calls it, a loss where the loop makes it, all
// else in the forward of a module or in what autograd makes of it.
SourcePlace SourceOf(const SourceLines& lines, Role role,
                     const std::string& name, bool of_step) {
  if (role == Role::kData) return {};
  if (of_step) {
    SourcePlace step = OfCall(lines, "step", "where the loop makes its step");
    // A norm of all gradients is of no module.
    if (!step.file.empty() || role == Role::kGradNorm) return step;
  }
  if (IsOfLoss(lines, role, name)) {
    SourcePlace loss = OfCall(lines, "loss", "the loss function");
    if (!loss.file.empty()) return loss;
    return OfCall(lines, "backward", "where the loop calls backward");
  }
  const SourceOfClass* of = lines.OfModule(name);
  if (const auto user = lines.UserOf(name)) {
    const SourceLine& line = *user->of->first();
    return {line.file, line.line,
            fmt::format("{}, whose {} is torch's {}", SourceWords(*user->of),
                        user->part, of->name)};
  }
  const SourceLine* first = of == nullptr ? nullptr : of->first();
  if (first == nullptr) return {};
  return {first->file, first->line, SourceWords(*of)};
}

}  // namespace

SourcePlace SourceOf(const SourceLines& lines, const TensorId& tensor) {
  return SourceOf(lines, tensor.role, tensor.fqn, IsOfStep(tensor.role));
}

SourcePlace SourceOf(const SourceLines& lines, const Culprit& culprit) {
  if (culprit.tensor.role == Role::kGradReduced &&
      culprit.Has(BugClass::kStaleValue)) {
    SourcePlace clearing =
        OfCall(lines, "zero_grad", "where the loop clears its gradients");
    if (!clearing.file.empty()) return clearing;
  }
  const std::string& name = culprit.name_in_candidate.empty()
                                ? culprit.fqn
                                : culprit.name_in_candidate;
  return SourceOf(lines, culprit.tensor.role, name,
                  culprit.stage == Stage::kOptimizer);
}

}  // namespace ttrace
