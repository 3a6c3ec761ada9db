#include "src/judge/tensor_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "src/base/rank_words.h"
#include "src/compare/compare_tensor.h"
#include "src/judge/constants.h"
#include "src/measure/exact_values.h"
#include "src/measure/repeated_parts.h"
#include "src/measure/skipped_update.h"

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double RepeatError(const TensorJudgement& t) {
  return t.repeat ? t.repeat->err : 0;
}

Status JudgeReplicas(const TensorPieces& candidate, TensorJudgement* out) {
  auto replicas = CompareReplicas(candidate);
  if (!replicas.ok()) {
    if (replicas.error().code() != ErrorCode::kIncomparable) {
      return replicas.error();
    }
    return Done{};
  }
  out->replicas = *std::move(replicas);
  if (out->replicas.differing > 0) {
    // Copies must be equal bit for bit, unless the run does not even repeat
    // itself: then they may differ by as much as it does.
    const double repeat = RepeatError(*out);
    out->replicas_differ =
        !(repeat > 0) || out->replicas.worst_rel_err > kNoiseFactor * repeat;
  }
  return Done{};
}

// Copies that differ in the run as it was: do they on equal inputs?
Status JudgeReplicasAlone(const TensorPieces& alone, TensorJudgement* out) {
  TensorJudgement copies;
  copies.repeat = out->repeat;
  TTRACE_RETURN_IF_ERROR(JudgeReplicas(alone, &copies));
  if (!out->isolated) out->isolated = TensorJudgement::Isolated{};
  out->isolated->replicas_differ |= copies.replicas_differ;
  return Done{};
}

// Without a reference: is a loss or a gradient finite? Activations may hold
// infinities on purpose (masked scores), so they are not judged by that.
Status JudgeAlone(const TensorId& id, const TensorPieces& candidate,
                  TensorJudgement* out, std::atomic<int64_t>* bytes) {
  out->verdict = TensorVerdict::kWithin;
  switch (id.role) {
    case Role::kLoss:
    case Role::kGradOutput:
    case Role::kGradInput:
    case Role::kGradLocal:
    case Role::kGradReduced:
    case Role::kGradNorm:
      break;
    default:
      return Done{};
  }
  const auto self = CompareTensor(candidate, candidate);
  if (!self.ok()) {
    if (self.error().code() != ErrorCode::kIncomparable) return self.error();
    out->verdict = TensorVerdict::kNotCheckable;
    out->reason = self.error().message();
    return Done{};
  }
  *bytes += self->total.count * Info(candidate.pieces.front()->dtype).itemsize;
  if (self->total.nonfinite_cand == 0) return Done{};
  LegJudgement leg;
  leg.leg = "real";
  leg.stats = self->total;
  leg.provenance = "must be finite";
  leg.headroom = kInfinity;
  out->legs.push_back(std::move(leg));
  out->deciding_leg = 0;
  out->nonfinite = true;
  out->headroom = kInfinity;
  out->verdict = TensorVerdict::kDiverged;
  for (const InstanceStats& instance : self->instances) {
    if (instance.stats.nonfinite_cand == 0) continue;
    out->ranks.insert(out->ranks.end(), instance.ranks.begin(),
                      instance.ranks.end());
  }
  const std::set<int> ranks(out->ranks.begin(), out->ranks.end());
  out->ranks.assign(ranks.begin(), ranks.end());
  return Done{};
}

void Explain(TensorVerdict verdict, const char* reason, TensorJudgement* out) {
  out->verdict = verdict;
  out->reason = reason;
  out->explained = true;
  out->deciding_leg = -1;
  out->headroom = 0;
}

// By something else than a bound.
void Convict(std::vector<int> ranks, std::string reason, TensorJudgement* out) {
  out->verdict = TensorVerdict::kDiverged;
  out->explained = false;
  out->headroom = kInfinity;
  out->ranks = std::move(ranks);
  out->reason = std::move(reason);
}

// Tokens, labels, masks, initial weights: there is no tolerance for these.
void JudgeExactly(const TensorPieces& reference, TensorJudgement* out) {
  LegJudgement& leg = out->legs.front();
  RequireEqual(&leg);
  out->deciding_leg = 0;
  out->headroom = leg.headroom;
  if (leg.stats.bitwise_equal()) {
    out->verdict = TensorVerdict::kBitwiseEqual;
    return;
  }
  out->verdict = TensorVerdict::kDiverged;
  out->ranks = leg.ranks;
  out->reason = fmt::format("{} of {} elements of {} differ",
                            leg.stats.mismatched, leg.stats.count,
                            Info(reference.pieces.front()->dtype).torch_name);
}

}  // namespace

TensorJudge::TensorJudge(const Side* reference, const Side& candidate,
                         const std::vector<LegPlan>& plans,
                         const RowAlignment& rows,
                         std::set<int> dirty_iterations)
    : reference_(reference),
      candidate_(candidate),
      plans_(plans),
      dirty_iterations_(std::move(dirty_iterations)),
      not_isolated_(candidate.not_isolated()) {
  for (const LegPlan& plan : plans) {
    if (plan.isolated) isolated_legs_.push_back(plan.name);
  }
  if (reference != nullptr) leg_judge_.emplace(*reference, candidate, rows);
}

Status TensorJudge::Judge(const TensorId& id, const TensorPieces& candidate,
                          TensorJudgement* out,
                          std::atomic<int64_t>* bytes) const {
  out->id = id;
  TTRACE_ASSIGN_OR_RETURN(out->repeat, Repeat(id, candidate));
  TTRACE_RETURN_IF_ERROR(JudgeReplicas(candidate, out));
  TTRACE_RETURN_IF_ERROR(reference_ == nullptr
                             ? JudgeAlone(id, candidate, out, bytes)
                             : JudgeByReference(id, candidate, out, bytes));
  if (out->replicas_differ) {
    // Whatever else is not comparable: copies need no reference.
    out->verdict = TensorVerdict::kDiverged;
    out->explained = false;
    if (!(out->headroom > 1)) out->headroom = kInfinity;
    if (out->ranks.empty()) out->ranks = out->replicas.differing_ranks;
  }
  return Done{};
}

Result<std::optional<TensorJudgement::Repeat>> TensorJudge::Repeat(
    const TensorId& id, const TensorPieces& real) const {
  std::optional<TensorJudgement::Repeat> repeat;
  const TensorPieces* replay = candidate_.Find("replay", id);
  if (replay == nullptr) return repeat;
  TTRACE_ASSIGN_OR_RETURN(const auto compared, CompareTensor(real, *replay));
  const bool bitwise = compared.total.bitwise_equal();
  repeat = {bitwise, bitwise ? 0 : compared.total.rel_err()};
  return repeat;
}

Status TensorJudge::JudgeByReference(const TensorId& id,
                                     const TensorPieces& candidate,
                                     TensorJudgement* out,
                                     std::atomic<int64_t>* bytes) const {
  const TensorPieces* reference = reference_->FindSameValue("real", id);
  if (reference == nullptr) {
    out->verdict = TensorVerdict::kUnmatched;
    out->reason = "the reference has no such tensor";
    return Done{};
  }
  if (reference->global_shape() != candidate.global_shape()) {
    out->verdict = TensorVerdict::kDiverged;
    out->headroom = kInfinity;
    out->reason = fmt::format("its shape is [{}], the reference's [{}]",
                              fmt::join(candidate.global_shape(), ", "),
                              fmt::join(reference->global_shape(), ", "));
    return Done{};
  }
  if (id.role == Role::kGradNorm) {
    // Judged from the gradients it is the norm of: no leg repeats a step.
    out->verdict = TensorVerdict::kWithin;
    return Done{};
  }
  TTRACE_RETURN_IF_ERROR(JudgeLegs(id, out, bytes));
  Conclude(id, candidate, *reference, out);
  ConcludeIsolated(isolated_legs_, not_isolated_, IsExact(candidate), out);
  if (ReplacedByGraft(id)) JudgeOwnParts(candidate, out);
  return id.role == Role::kParamUpdated ? JudgeUpdate(id, out) : Done{};
}

Status TensorJudge::JudgeLegs(const TensorId& id, TensorJudgement* out,
                              std::atomic<int64_t>* bytes) const {
  for (const LegPlan& plan : plans_) {
    // From other weights a module computes something else.
    if (plan.isolated &&
        (!InIsolation(id.role) || dirty_iterations_.contains(id.iteration))) {
      continue;
    }
    TTRACE_ASSIGN_OR_RETURN(
        auto judged, leg_judge_->Judge(plan, id, RepeatError(*out), bytes));
    if (!judged.trouble.empty()) out->reason = std::move(judged.trouble);
    if (!judged.leg) continue;
    out->legs.push_back(*std::move(judged.leg));
    if (plan.isolated && out->replicas_differ) {
      TTRACE_RETURN_IF_ERROR(
          JudgeReplicasAlone(*candidate_.Find(plan.candidate_leg, id), out));
    }
  }
  return Done{};
}

// A step that did not happen is told without any tolerance.
Status TensorJudge::JudgeUpdate(const TensorId& id,
                                TensorJudgement* out) const {
  TTRACE_ASSIGN_OR_RETURN(const auto skipped,
                          FindSkippedUpdate(*reference_, candidate_, id));
  if (skipped.ranks.empty()) return Done{};
  out->not_updated = true;
  Convict(
      skipped.ranks,
      fmt::format("the step left all {} elements as they were, of which the "
                  "reference's step changed {}{}",
                  skipped.unchanged, skipped.changed,
                  skipped.far ? " by 4 units in the last place or more" : ""),
      out);
  return Done{};
}

// Other data or weights are no finding where they are grafted: samplers
// shuffle, and topologies draw other random numbers. Ranks that have one
// another's are.
void TensorJudge::JudgeOwnParts(const TensorPieces& candidate,
                                TensorJudgement* out) const {
  if (out->verdict != TensorVerdict::kNotCheckable || out->legs.empty()) return;
  const RepeatedParts repeated =
      FindRepeatedParts(candidate, out->legs.front().ranks);
  if (repeated.ranks.empty()) return;
  RequireEqual(&out->legs.front());
  out->deciding_leg = 0;
  const char* verb = out->id.role == Role::kData ? "read" : "held";
  Convict(
      repeated.ranks,
      fmt::format("{} {} {}, where the reference has other values (they were "
                  "replaced by the reference's)",
                  RankWords(repeated.ranks), verb,
                  repeated.ranks == repeated.as
                      ? "one and the same part"
                      : fmt::format("the part of {}", RankWords(repeated.as))),
      out);
}

// From the legs to the verdict.
void TensorJudge::Conclude(const TensorId& id, const TensorPieces& candidate,
                           const TensorPieces& reference,
                           TensorJudgement* out) const {
  const bool gaps = !out->reason.empty();
  // Isolated legs stand last and have a verdict of their own.
  const size_t legs = out->legs.size() - IsolatedLegs(*out);
  bool equal = legs > 0;
  for (size_t i = 0; i < legs; ++i) {
    const LegJudgement& leg = out->legs[i];
    equal = equal && leg.stats.bitwise_equal();
    if (leg.stats.nonfinite_differ > 0) out->nonfinite = true;
    if (leg.checkable &&
        (out->deciding_leg < 0 || leg.headroom > out->headroom)) {
      out->deciding_leg = static_cast<int>(i);
      out->headroom = leg.headroom;
    }
  }
  if (legs == 0) {
    out->verdict = TensorVerdict::kUnmatched;
    if (out->reason.empty()) out->reason = "no leg of both sides has it";
    return;
  }
  if (equal && !gaps) {
    out->verdict = TensorVerdict::kBitwiseEqual;
    return;
  }
  if (out->nonfinite) {
    out->verdict = TensorVerdict::kDiverged;
    out->headroom = kInfinity;
    if (out->deciding_leg < 0) out->deciding_leg = 0;
    out->ranks = out->deciding()->ranks;
    return;
  }
  if (ReplacedByGraft(id)) {
    Explain(TensorVerdict::kNotCheckable, "replaced by the reference's", out);
    return;
  }
  if (IsAfterStep(id.role)) {
    Explain(TensorVerdict::kNotCheckable,
            "after an optimizer step only copies are compared (the step is "
            "not replayed)",
            out);
    return;
  }
  if (IsExact(candidate) || HasNoTolerance(id.role)) {
    JudgeExactly(reference, out);
    return;
  }
  if (dirty_iterations_.contains(id.iteration)) {
    Explain(TensorVerdict::kNotCheckable,
            "its iteration starts from other weights (a step was taken and "
            "weights were not grafted)",
            out);
    return;
  }
  if (out->deciding_leg < 0) {
    out->verdict = TensorVerdict::kNotCheckable;
    out->reason = out->legs.front().provenance;
    return;
  }
  if (out->headroom > 1) {
    out->verdict = TensorVerdict::kDiverged;
    out->ranks = out->deciding()->ranks;
  } else if (gaps) {
    out->verdict = TensorVerdict::kUnmatched;
  } else if (out->headroom > kSuspectHeadroom) {
    out->verdict = TensorVerdict::kSuspect;
  } else {
    out->verdict = TensorVerdict::kWithin;
  }
}

bool TensorJudge::ReplacedByGraft(const TensorId& id) const {
  return (id.role == Role::kParam && candidate_.weights_grafted()) ||
         (id.role == Role::kData && candidate_.data_grafted());
}

size_t TensorJudge::IsolatedLegs(const TensorJudgement& t) const {
  return static_cast<size_t>(
      std::count_if(t.legs.begin(), t.legs.end(), [&](const auto& leg) {
        return std::find(isolated_legs_.begin(), isolated_legs_.end(),
                         leg.leg) != isolated_legs_.end();
      }));
}

}  // namespace ttrace
