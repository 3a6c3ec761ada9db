#include "src/judge/judge_run.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "src/experiment/execution_order.h"
#include "src/experiment/parameter_roles.h"
#include "src/experiment/unequal_starts.h"
#include "src/judge/expectations.h"
#include "src/judge/judge_norm.h"
#include "src/judge/judge_tensor.h"
#include "src/judge/overflow.h"
#include "src/judge/unlike_draws.h"
#include "src/measure/measure_tensor.h"
#include "src/measure/reported_norm.h"

namespace ttrace {
namespace {

using Entry = std::pair<const TensorId, TensorPieces>;

int StagesOf(const Side& side) {
  const DeviceMesh& mesh = side.trace().mesh();
  const int pp = mesh.Find("pp");
  return pp < 0 ? 1 : mesh.dims[static_cast<size_t>(pp)].size;
}

// The candidate's tensors in the order of execution.
std::vector<const Entry*> InOrder(const JudgeContext& context) {
  const ExecutionKeys keys(context.candidate->real());
  std::vector<Ordered> order;
  for (const Entry& entry : context.candidate->real()) {
    if (!context.Judges(entry.first.iteration)) continue;
    ExecutionKey key = keys.Of(entry.first, entry.second);
    // Gradients are recorded together; what tells their order is the order in
    // which they are reduced.
    const int64_t index = context.candidate->ReductionIndex(entry.first.fqn);
    if (index >= 0 && IsParameterGradient(entry.first.role)) {
      key.sequence = index;
    }
    order.emplace_back(key, &entry.first);
  }
  std::sort(order.begin(), order.end(), [](const Ordered& a, const Ordered& b) {
    return std::tie(a.first, *a.second) < std::tie(b.first, *b.second);
  });
  const Side* reference = context.reference;
  if (reference != nullptr && StagesOf(*context.candidate) > 1 &&
      StagesOf(*reference) == 1) {
    const ExecutionKeys of_reference(reference->real());
    FollowReference(
        [&](const TensorId& id) {
          const auto found = reference->real().find(id);
          return found == reference->real().end()
                     ? -1
                     : of_reference.Of(id, found->second).sequence;
        },
        &order);
  }
  std::vector<const Entry*> out;
  out.reserve(order.size());
  for (const auto& [key, id] : order) {
    out.push_back(&*context.candidate->real().find(*id));
  }
  return out;
}

// Calls `work(i)` for each i below `count`, on all threads, and reports the
// first error in the order of i.
Status ForEach(const JudgeContext& context, size_t count,
               const std::function<Status(size_t)>& work) {
  std::vector<std::optional<Error>> errors(count);
  // More threads than cores are a user's right: without this oneTBB warns.
  std::optional<tbb::global_control> limit;
  if (context.threads > 0) {
    limit.emplace(tbb::global_control::max_allowed_parallelism,
                  static_cast<size_t>(context.threads));
  }
  tbb::task_arena arena(context.threads > 0 ? context.threads
                                            : tbb::task_arena::automatic);
  arena.execute([&] {
    tbb::parallel_for(size_t{0}, count, [&](size_t i) {
      const Status status = work(i);
      if (!status.ok()) errors[i] = status.error();
    });
  });
  for (const auto& error : errors) {
    if (error) return *error;
  }
  return Done{};
}

Result<std::vector<TensorFacts>> MeasureAll(
    const JudgeContext& context, const TensorMeasurer& measurer,
    const std::vector<const Entry*>& entries, int64_t* bytes) {
  std::vector<TensorFacts> facts(entries.size());
  std::atomic<int64_t> read = 0;
  std::atomic<int64_t> done = 0;
  const auto total = static_cast<int64_t>(entries.size());
  TTRACE_RETURN_IF_ERROR(
      ForEach(context, entries.size(), [&](size_t i) -> Status {
        const auto& [id, pieces] = *entries[i];
        TTRACE_ASSIGN_OR_RETURN(facts[i], measurer.Measure(id, pieces, &read));
        facts[i].order = static_cast<int64_t>(i);
        facts[i].batch_unknown = context.batch_unknown.contains(id);
        const int64_t n = ++done;
        if (context.progress && (n % 64 == 0 || n == total)) {
          context.progress(n, total);
        }
        return Done{};
      }));
  *bytes += read;
  return facts;
}

Status JudgeNorms(const JudgeContext& context, double risk,
                  std::vector<TensorJudgement>* tensors) {
  for (TensorJudgement& t : *tensors) {
    if (t.id.role != Role::kGradNorm) continue;
    auto norm = MeasureReportedNorm(*context.candidate, t.id);
    if (!norm.ok()) {
      if (norm.error().code() != ErrorCode::kCorrupt) return norm.error();
      t.verdict = TensorVerdict::kNotCheckable;
      t.reason = {};
      t.reason.kind = ReasonKind::kDamaged;
      t.reason.detail = norm.error().message();
      continue;
    }
    t = JudgeReportedNorm(*norm, t, risk);
  }
  return Done{};
}

// Those of `judged` parameters; all if it is null.
Result<ReplayedSteps> ReplaySteps(const JudgeContext& context,
                                  const StepCatalog& catalog,
                                  const ReplayedSteps* judged, int64_t* bytes) {
  std::vector<StepOfParameter> steps;
  for (const StepOfParameter& step : catalog.steps()) {
    if (!context.Judges(step.iteration)) continue;
    if (judged == nullptr || judged->contains(step)) steps.push_back(step);
  }
  std::vector<std::optional<ReplayedStep>> replayed(steps.size());
  std::atomic<int64_t> read = 0;
  TTRACE_RETURN_IF_ERROR(
      ForEach(context, steps.size(), [&](size_t i) -> Status {
        int64_t own = 0;
        auto step = ReplayStep(catalog, steps[i], &own);
        // Damaged bytes are said where their tensor is judged.
        if (!step.ok() && step.error().code() != ErrorCode::kCorrupt) {
          return step.error();
        }
        if (step.ok()) replayed[i] = *std::move(step);
        read += own;
        return Done{};
      }));
  *bytes += read;
  ReplayedSteps out;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (replayed[i]) out.emplace(steps[i], *std::move(replayed[i]));
  }
  return out;
}

Status JudgeAllSteps(const JudgeContext& context, JudgeOutcome* out) {
  const StepCatalog own(*context.candidate, context.reference);
  TTRACE_ASSIGN_OR_RETURN(
      out->steps, ReplaySteps(context, own, nullptr, &out->bytes_compared));
  if (context.reference != nullptr) {
    const StepCatalog theirs(*context.reference, nullptr);
    TTRACE_ASSIGN_OR_RETURN(
        out->reference_steps,
        ReplaySteps(context, theirs, &out->steps, &out->bytes_compared));
  }
  JudgeSteps(out->steps, out->reference_steps, &out->tensors);
  return Done{};
}

bool CandidateHas(const Side& candidate, TensorId id) {
  if (candidate.Find("real", id) != nullptr) return true;
  if (id.pass != Pass::kRecompute) return false;
  // Its values are compared through the forward, if there is one.
  id.pass = Pass::kForward;
  return candidate.Find("real", id) != nullptr;
}

void AddWhatOnlyTheReferenceHas(const JudgeContext& context,
                                std::vector<TensorJudgement>* tensors) {
  for (const auto& [id, pieces] : context.reference->real()) {
    if (!context.Judges(id.iteration) || CandidateHas(*context.candidate, id)) {
      continue;
    }
    TensorJudgement t;
    t.id = id;
    t.order = static_cast<int64_t>(tensors->size());
    t.verdict = TensorVerdict::kUnmatched;
    t.reason.kind = ReasonKind::kNotInCandidate;
    tensors->push_back(std::move(t));
  }
}

}  // namespace

Result<JudgeOutcome> JudgeRun(const JudgeContext& context) {
  std::set<int> unequal;
  if (context.reference != nullptr) {
    TTRACE_ASSIGN_OR_RETURN(
        unequal, UnequalStarts(*context.reference, *context.candidate,
                               context.iterations));
  }
  JudgeOutcome out;
  const TensorMeasurer measurer(context.reference, *context.candidate,
                                context.plans, context.rows);
  TTRACE_ASSIGN_OR_RETURN(
      const std::vector<TensorFacts> facts,
      MeasureAll(context, measurer, InOrder(context), &out.bytes_compared));

  const Expectations expectations(facts, context.risk);
  out.tests = expectations.tests();
  const UnlikeDraws draws(context.reference, *context.candidate, facts);
  out.unlike_draws = draws.modules();
  const Overflows overflows(context.reference, *context.candidate, facts);
  TensorJudge judge(context.reference, *context.candidate, context.plans,
                    expectations, draws, overflows, std::move(unequal));
  judge.FindTies(facts);
  out.tensors.resize(facts.size());
  TTRACE_RETURN_IF_ERROR(ForEach(context, facts.size(), [&](size_t i) {
    out.tensors[i] = judge.Judge(facts[i]);
    return Status(Done{});
  }));
  TTRACE_RETURN_IF_ERROR(
      JudgeNorms(context, expectations.risk(), &out.tensors));
  TTRACE_RETURN_IF_ERROR(JudgeAllSteps(context, &out));
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
