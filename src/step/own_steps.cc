#include "src/step/own_steps.h"

#include <algorithm>

namespace ttrace {
namespace {

bool IsNoteOfRun(const std::string& kind) {
  return kind == "graft" || kind == "graft_begins";
}

bool IsNoteOfStep(const std::string& kind) {
  return kind == "optimizer_group" || kind == "skipped_step" ||
         kind == "no_gradient";
}

// What a step is made of, beside the optimizer's state.
bool IsOfStepInputs(Role role) {
  return role == Role::kParam || role == Role::kParamUpdated ||
         role == Role::kGradReduced || role == Role::kGradNorm;
}

// What the model's own parameter is after the step, and what is stepped in its
// place, is recorded with the state. Where it is not, a later record says it.
bool IsRecordedWhole(const StepTensors& tensors) {
  const auto after = [&](StepField field) {
    return tensors.Has(field) && tensors.At(field).id.role == Role::kOptimState;
  };
  return after(StepField::kParameterAfter) &&
         (!tensors.has_master || after(StepField::kCopyAfter));
}

}  // namespace

void OwnSteps::Wrote(const RecordFields& record) {
  if (record.leg != kReal || !IsOfStepInputs(record.id.role)) return;
  if (record.id.iteration > newest_) {
    newest_ = record.id.iteration;
    // A step is made of its own iteration and of what the one before left.
    std::erase_if(written_, [this](const RecordFields& earlier) {
      return earlier.id.iteration + 1 < newest_;
    });
  }
  written_.push_back(record);
}

void OwnSteps::Noted(const std::string& kind, const std::string& json_object) {
  if (IsNoteOfRun(kind)) notes_.push_back({meta_.rank, kind, json_object});
  if (IsNoteOfStep(kind)) {
    step_notes_.push_back({meta_.rank, kind, json_object});
  }
}

Result<OwnSteps::Replays> OwnSteps::Replay(int iteration,
                                           const DeferredRecords& aside,
                                           WrittenRecords& written,
                                           const Side& grafted_from) {
  auto out = MakeSteps(iteration, aside, written, grafted_from);
  step_notes_.clear();
  left_.clear();
  for (const DeferredRecords::Held& held : aside.held()) {
    if (held.record.id.pass == Pass::kOptimizer) left_.push_back(held);
  }
  return out;
}

Result<OwnSteps::Replays> OwnSteps::MakeSteps(int iteration,
                                              const DeferredRecords& aside,
                                              WrittenRecords& written,
                                              const Side& grafted_from) {
  RankTrace rank;
  rank.meta = meta_;
  rank.notes = notes_;
  rank.notes.insert(rank.notes.end(), step_notes_.begin(), step_notes_.end());
  // It is about to be.
  rank.sealed = {{iteration - 1, kReal}, {iteration, kReal}};
  const auto trace =
      std::make_shared<OwnTrace>(std::move(rank), aside, written);
  for (const RecordFields& record : written_) trace->Add(record);
  for (const DeferredRecords::Held& held : left_) trace->Add(held);
  Replays out;
  for (const DeferredRecords::Held& held : aside.held()) {
    out.held.push_back(trace->Add(held));
  }
  out.trace = trace;
  const Side side = Side::Of(trace);
  const StepCatalog catalog(side, &grafted_from);
  for (const StepOfParameter& step : catalog.steps()) {
    if (step.iteration != iteration) continue;
    const StepTensors tensors = catalog.Find(step);
    if (!IsRecordedWhole(tensors)) continue;
    TTRACE_ASSIGN_OR_RETURN(RankReplay replay,
                            ReplayOnRank(catalog, tensors, meta_.rank));
    out.steps.emplace(step, std::move(replay));
  }
  return out;
}

bool IsRight(const RankReplay& replay) {
  return replay.judged && replay.gaps.empty() && !replay.whole.empty() &&
         std::all_of(replay.whole.begin(), replay.whole.end(),
                     [](uint8_t whole) { return whole == 1; }) &&
         std::all_of(replay.errors.begin(), replay.errors.end(),
                     [](const StepErrors& errors) { return errors.out == 0; });
}

}  // namespace ttrace
