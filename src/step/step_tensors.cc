#include "src/step/step_tensors.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/compare/summaries/compare_summaries.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

constexpr char kUpdated[] = "updated";

TensorId StateId(const StepOfParameter& step, const std::string& arg,
                 Pass pass) {
  return {step.fqn, Role::kOptimState, step.iteration, 0, arg, pass};
}

TensorId OwnId(const StepOfParameter& step, Role role, Pass pass) {
  return {step.fqn, role, step.iteration, 0, "", pass};
}

bool OneElement(const TensorPieces& pieces) {
  const Layout& layout = pieces.pieces.front().layout();
  return layout.local_count() == 1 && layout.global_count() == 1;
}

}  // namespace

std::string NameOf(StepField field) {
  switch (field) {
    case StepField::kParameter:
    case StepField::kCopy:
      return "param";
    case StepField::kGradient:
    case StepField::kOldGradient:
      return "grad_reduced";
    case StepField::kFirst:
    case StepField::kFirstAfter:
      return "exp_avg";
    case StepField::kSecond:
    case StepField::kSecondAfter:
      return "exp_avg_sq";
    case StepField::kLargest:
    case StepField::kLargestAfter:
      return "max_exp_avg_sq";
    case StepField::kMomentum:
    case StepField::kMomentumAfter:
      return "momentum_buffer";
    case StepField::kParameterAfter:
    case StepField::kCopyAfter:
      return "param_updated";
  }
  return "";
}

StepCatalog::StepCatalog(const Side& side, const Side* grafted_from)
    : side_(side),
      grafted_from_(side.facts().weights_grafted ? grafted_from : nullptr),
      hyperparameters_(ReadHyperparameters(side.trace())) {
  for (const auto& [id, pieces] : side.real()) {
    const bool state = id.role == Role::kOptimState &&
                       id.pass == Pass::kOptimizer && id.arg != "step";
    if (state || id.role == Role::kParamUpdated) {
      steps_.insert({id.iteration, id.fqn});
    }
  }
  ForEachNote(side.trace(), {"skipped_step", "no_gradient"},
              [&](const ParsedNote& note) { Read(note); });
}

void StepCatalog::Read(const ParsedNote& note) {
  const std::optional<int> iteration = note.iteration();
  if (!iteration) return;
  if (note.kind == "skipped_step") {
    skipped_.insert({note.rank, *iteration});
    return;
  }
  for (std::string& fqn : TextsAt(note.json, "parameters")) {
    without_gradient_.insert({note.rank, {*iteration, std::move(fqn)}});
  }
}

StepTensor StepCatalog::State(const StepOfParameter& step,
                              const std::string& arg, Pass pass) const {
  StepTensor out;
  out.id = StateId(step, arg, pass);
  out.pieces = side_.Find(kReal, out.id);
  return out;
}

// Nothing changes state between two steps, so that what one left the next one
// finds; but for a master copy, which is made again from grafted weights.
StepTensor StepCatalog::StateBefore(const StepOfParameter& step,
                                    const std::string& arg) const {
  StepTensor out = State(step, arg, Pass::kForward);
  if (out.pieces != nullptr ||
      (arg == "master" && side_.facts().weights_grafted)) {
    return out;
  }
  StepOfParameter earlier = step;
  --earlier.iteration;
  const StepTensor left = State(earlier, arg, Pass::kOptimizer);
  return left.pieces != nullptr ? left : out;
}

StepTensor StepCatalog::OwnBefore(const StepOfParameter& step) const {
  StepTensor out = State(step, kUpdated, Pass::kForward);
  if (out.pieces != nullptr) return out;
  if (side_.facts().weights_grafted && grafted_from_ == nullptr) return out;
  const Side& from = grafted_from_ != nullptr ? *grafted_from_ : side_;
  out.of_reference = grafted_from_ != nullptr;
  StepOfParameter earlier = step;
  --earlier.iteration;
  out.id = OwnId(earlier, Role::kParamUpdated, Pass::kOptimizer);
  out.pieces = from.Find(kReal, out.id);
  if (out.pieces != nullptr) return out;
  out.id = OwnId(step, Role::kParam, Pass::kForward);
  out.pieces = from.Find(kReal, out.id);
  return out;
}

StepTensor StepCatalog::OwnAfter(const StepOfParameter& step) const {
  // Before anything else could change it.
  StepTensor out = State(step, kUpdated, Pass::kOptimizer);
  if (out.pieces != nullptr) return out;
  out.id = OwnId(step, Role::kParamUpdated, Pass::kOptimizer);
  out.pieces = side_.Find(kReal, out.id);
  return out;
}

StepTensors StepCatalog::Find(const StepOfParameter& step) const {
  StepTensors out;
  out.step = step;
  const auto put = [&](StepField field, StepTensor tensor) {
    out.fields[static_cast<size_t>(field)] = std::move(tensor);
  };
  const StepTensor master = State(step, "master", Pass::kOptimizer);
  out.has_master = master.pieces != nullptr;
  if (out.has_master) {
    put(StepField::kParameter, StateBefore(step, "master"));
    put(StepField::kParameterAfter, master);
    put(StepField::kCopy, OwnBefore(step));
    put(StepField::kCopyAfter, OwnAfter(step));
  } else {
    put(StepField::kParameter, OwnBefore(step));
    put(StepField::kParameterAfter, OwnAfter(step));
  }
  for (const auto& [before, after] :
       {std::pair(StepField::kFirst, StepField::kFirstAfter),
        std::pair(StepField::kSecond, StepField::kSecondAfter),
        std::pair(StepField::kLargest, StepField::kLargestAfter),
        std::pair(StepField::kMomentum, StepField::kMomentumAfter)}) {
    put(before, StateBefore(step, NameOf(before)));
    put(after, State(step, NameOf(after), Pass::kOptimizer));
  }
  StepTensor gradient;
  gradient.id = OwnId(step, Role::kGradReduced, Pass::kBackward);
  gradient.pieces = side_.Find(kReal, gradient.id);
  put(StepField::kGradient, gradient);
  --gradient.id.iteration;
  gradient.pieces = side_.Find(kReal, gradient.id);
  put(StepField::kOldGradient, gradient);
  for (StepTensor& tensor : out.fields) {
    // A step is made again of values.
    if (tensor.pieces != nullptr && HasSummaries(*tensor.pieces)) {
      tensor.pieces = nullptr;
    }
  }
  out.count = StateBefore(step, "step");
  out.count_after = State(step, "step", Pass::kOptimizer);
  for (const auto& [id, pieces] : side_.real()) {
    if (id.role != Role::kGradNorm || id.iteration != step.iteration) continue;
    ++out.several_norms;
    if (OneElement(pieces)) out.norm = &pieces;
  }
  if (out.several_norms > 1) out.norm = nullptr;
  return out;
}

}  // namespace ttrace
