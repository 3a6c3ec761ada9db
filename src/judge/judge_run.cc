#include "src/judge/judge_run.h"

#include <algorithm>
#include <utility>

#include "src/base/for_each.h"
#include "src/experiment/unequal_starts.h"
#include "src/judge/expectations.h"
#include "src/judge/judge_norm.h"
#include "src/judge/judge_step.h"
#include "src/judge/judge_tensor.h"
#include "src/judge/skipped_steps.h"
#include "src/judge/unlike_draws.h"
#include "src/measure/reported_norm.h"

namespace ttrace {
namespace {

Status JudgeNorms(const RunContext& context, double risk,
                  const GradientSquares& squares,
                  std::vector<TensorJudgement>* tensors) {
  for (TensorJudgement& t : *tensors) {
    if (t.id.role != Role::kGradNorm) continue;
    auto norm = MeasureReportedNorm(*context.candidate, t.id, squares);
    if (!norm.ok()) {
      if (norm.error().code() != ErrorCode::kCorrupt) return norm.error();
      t.Conclude(
          NotCheckable(Because(ReasonKind::kDamaged, norm.error().message())));
      continue;
    }
    t = JudgeReportedNorm(*norm, t, risk);
  }
  return Done{};
}

bool CandidateHas(const Side& candidate, TensorId id) {
  if (candidate.Find(kReal, id) != nullptr) return true;
  if (id.pass != Pass::kRecompute) return false;
  // Its values are compared through the forward, if there is one.
  id.pass = Pass::kForward;
  return candidate.Find(kReal, id) != nullptr;
}

}  // namespace

void AddWhatOnlyTheReferenceHas(const RunContext& context,
                                std::vector<TensorJudgement>* tensors) {
  for (const auto& [id, pieces] : context.reference->real()) {
    if (!context.Judges(id.iteration) || CandidateHas(*context.candidate, id)) {
      continue;
    }
    TensorJudgement t;
    t.id = id;
    t.order = static_cast<int64_t>(tensors->size());
    t.Conclude(
        Settled(TensorVerdict::kUnmatched,
                Because(ReasonKind::kNotInCandidate, WhyAbsent(id.role))));
    tensors->push_back(std::move(t));
  }
}

Result<JudgeOutcome> JudgeRun(const RunContext& context, double risk,
                              Measurements* measured) {
  PackedFacts& facts = measured->facts;
  JudgeOutcome out;
  const Expectations expectations(facts, risk);
  out.tests = expectations.tests();
  const UnlikeDraws draws(context.reference, *context.candidate, facts);
  out.unlike_draws = draws.modules();
  const SkippedSteps skipped(context.reference, *context.candidate, facts);
  TensorJudge judge(
      context.reference, *context.candidate, context.plans, expectations, draws,
      skipped, UnequalStarts(*context.candidate, measured->unequal_updates));
  judge.FindTies(facts);
  out.tensors.resize(facts.size());
  TTRACE_RETURN_IF_ERROR(ForEach(context.threads, facts.size(), [&](size_t i) {
    out.tensors[i] = judge.Judge(facts[i]);
    facts.Forget(i);
    return Status(Done{});
  }));
  facts = {};
  TTRACE_RETURN_IF_ERROR(JudgeNorms(context, expectations.risk(),
                                    measured->squares, &out.tensors));
  JudgeSteps(measured->steps, measured->reference_steps, &out.tensors);
  for (const TensorJudgement& t : out.tensors) {
    if (t.replicas.groups > 0) ++out.replica_groups;
    if (!t.not_repeatable) continue;
    ++out.not_repeatable;
    out.largest_repeat = std::max(out.largest_repeat, t.repeat->err);
  }
  if (context.reference != nullptr) {
    AddWhatOnlyTheReferenceHas(context, &out.tensors);
  }
  return out;
}

}  // namespace ttrace
