#include "src/judge/judge_tensors.h"

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
#include "src/experiment/unequal_starts.h"
#include "src/judge/grad_norm.h"
#include "src/judge/tensor_judge.h"

namespace ttrace {
namespace {

using Entry = std::pair<const TensorId, TensorPieces>;

// The candidate's tensors in the order of execution.
std::vector<const Entry*> InOrder(const JudgeContext& context) {
  std::vector<std::pair<ExecutionKey, const Entry*>> order;
  for (const Entry& entry : context.candidate->real()) {
    if (!context.Judges(entry.first.iteration)) continue;
    ExecutionKey key = KeyOf(entry.first, entry.second);
    // Gradients are recorded together; what tells their order is the order in
    // which they are reduced.
    const int64_t index = context.candidate->ReductionIndex(entry.first.fqn);
    if (index >= 0 && (entry.first.role == Role::kGradLocal ||
                       entry.first.role == Role::kGradReduced)) {
      key.sequence = index;
    }
    order.emplace_back(key, &entry);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second->first) <
           std::tie(b.first, b.second->first);
  });
  std::vector<const Entry*> out;
  out.reserve(order.size());
  for (const auto& [key, entry] : order) out.push_back(entry);
  return out;
}

// Each tensor by itself, on all threads. Adds to `bytes` what was read.
Result<std::vector<TensorJudgement>> JudgeAll(
    const JudgeContext& context, const TensorJudge& judge,
    const std::vector<const Entry*>& entries, int64_t* bytes) {
  std::vector<TensorJudgement> out(entries.size());
  std::vector<std::optional<Error>> errors(entries.size());
  std::atomic<int64_t> read = 0;
  std::atomic<int64_t> done = 0;
  const auto total = static_cast<int64_t>(entries.size());
  // More threads than cores are a user's right: without this oneTBB warns.
  std::optional<tbb::global_control> limit;
  if (context.threads > 0) {
    limit.emplace(tbb::global_control::max_allowed_parallelism,
                  static_cast<size_t>(context.threads));
  }
  tbb::task_arena arena(context.threads > 0 ? context.threads
                                            : tbb::task_arena::automatic);
  arena.execute([&] {
    tbb::parallel_for(size_t{0}, entries.size(), [&](size_t i) {
      const auto& [id, pieces] = *entries[i];
      out[i].order = static_cast<int64_t>(i);
      const Status status = judge.Judge(id, pieces, &out[i], &read);
      if (!status.ok()) errors[i] = status.error();
      const int64_t n = ++done;
      if (context.progress && (n % 64 == 0 || n == total)) {
        context.progress(n, total);
      }
    });
  });
  for (const auto& error : errors) {
    if (error) return *error;
  }
  *bytes += read;
  return out;
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
    t.reason = "the candidate has no such tensor";
    tensors->push_back(std::move(t));
  }
}

}  // namespace

Result<JudgeOutcome> JudgeTensors(const JudgeContext& context) {
  std::set<int> dirty;
  if (context.reference != nullptr) {
    TTRACE_ASSIGN_OR_RETURN(
        dirty, DirtyIterations(*context.reference, *context.candidate,
                               context.iterations));
  }
  const TensorJudge judge(context.reference, *context.candidate, context.plans,
                          context.rows, std::move(dirty));
  JudgeOutcome out;
  TTRACE_ASSIGN_OR_RETURN(
      out.tensors,
      JudgeAll(context, judge, InOrder(context), &out.bytes_compared));
  TTRACE_RETURN_IF_ERROR(JudgeGradNorms(*context.candidate, &out.tensors));
  for (const TensorJudgement& t : out.tensors) {
    if (t.replicas.groups > 0) ++out.replica_groups;
    if (t.repeat && !t.repeat->bitwise) ++out.not_repeatable;
  }
  if (context.reference != nullptr) {
    AddWhatOnlyTheReferenceHas(context, &out.tensors);
  }
  return out;
}

}  // namespace ttrace
