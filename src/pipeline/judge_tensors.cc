#include "src/pipeline/judge_tensors.h"

#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <set>

#include "src/localize/execution_order.h"
#include "src/pipeline/isolated_verdict.h"
#include "src/pipeline/longest_sums.h"
#include "src/pipeline/skipped_update.h"
#include "src/tolerance/constants.h"
#include "src/tolerance/maxima.h"
#include "src/tolerance/rule.h"

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool IsExact(const TensorPieces& pieces) {
  return !Info(pieces.pieces.front()->dtype).floating;
}

bool IsAfterStep(Role role) {
  return role == Role::kParamUpdated || role == Role::kOptimState;
}

// Judged exactly, or not against the reference.
bool HasNoTolerance(Role role) {
  return role == Role::kData || role == Role::kParam || IsAfterStep(role);
}

bool IsVectorGradient(const TensorId& id, const TensorPieces& pieces) {
  return (id.role == Role::kGradLocal || id.role == Role::kGradReduced) &&
         pieces.global_shape().size() <= 1;
}

// Judges single tensors. Const and shared by all threads.
class TensorJudge {
 public:
  TensorJudge(const JudgeContext& context, std::set<int> dirty_iterations)
      : context_(context),
        dirty_iterations_(std::move(dirty_iterations)),
        not_isolated_(context.candidate->not_isolated()) {
    for (const LegPlan& plan : context.plans) {
      if (plan.isolated) isolated_legs_.push_back(plan.name);
    }
    if (context.reference != nullptr) {
      sums_ = FindLongestSums(*context.reference, *context.candidate);
    }
  }

  // Adds what it read to `bytes`. Fails only if a file cannot be read.
  Status Judge(const TensorId& id, const TensorPieces& candidate,
               TensorJudgement* out, std::atomic<int64_t>* bytes) const {
    out->id = id;
    TTRACE_ASSIGN_OR_RETURN(out->repeat, Repeat(id, candidate));
    TTRACE_RETURN_IF_ERROR(JudgeReplicas(candidate, out));
    const TensorPieces* reference =
        context_.reference == nullptr
            ? nullptr
            : context_.reference->FindSameValue("real", id);
    if (context_.reference == nullptr) {
      TTRACE_RETURN_IF_ERROR(JudgeAlone(id, candidate, out, bytes));
    } else if (reference == nullptr) {
      out->verdict = TensorVerdict::kUnmatched;
      out->reason = "the reference has no such tensor";
    } else if (reference->global_shape() != candidate.global_shape()) {
      out->verdict = TensorVerdict::kDiverged;
      out->headroom = kInfinity;
      out->reason = fmt::format("its shape is [{}], the reference's [{}]",
                                fmt::join(candidate.global_shape(), ", "),
                                fmt::join(reference->global_shape(), ", "));
    } else if (id.role == Role::kGradNorm) {
      // Judged from the gradients it is the norm of: no leg repeats a step.
      out->verdict = TensorVerdict::kWithin;
    } else {
      TTRACE_RETURN_IF_ERROR(JudgeLegs(id, out, bytes));
      Conclude(id, candidate, *reference, out);
      ConcludeIsolated(isolated_legs_, not_isolated_, out);
      if (id.role == Role::kParamUpdated) {
        TTRACE_RETURN_IF_ERROR(JudgeUpdate(id, out));
      }
    }
    if (out->replicas_differ) {
      // Whatever else is not comparable: copies need no reference.
      out->verdict = TensorVerdict::kDiverged;
      out->explained = false;
      if (!(out->headroom > 1)) out->headroom = kInfinity;
      if (out->ranks.empty()) out->ranks = out->replicas.differing_ranks;
    }
    return Done{};
  }

 private:
  // A step that did not happen is told without any tolerance.
  Status JudgeUpdate(const TensorId& id, TensorJudgement* out) const {
    TTRACE_ASSIGN_OR_RETURN(
        const auto skipped,
        FindSkippedUpdate(*context_.reference, *context_.candidate, id));
    if (skipped.ranks.empty()) return Done{};
    out->verdict = TensorVerdict::kDiverged;
    out->explained = false;
    out->headroom = kInfinity;
    out->ranks = skipped.ranks;
    out->not_updated = true;
    out->reason = fmt::format(
        "the step left all {} elements as they were, of which the reference's "
        "step changed {}{}",
        skipped.unchanged, skipped.changed,
        skipped.far ? " by 4 units in the last place or more" : "");
    return Done{};
  }

  Result<std::optional<TensorJudgement::Repeat>> Repeat(
      const TensorId& id, const TensorPieces& real) const {
    std::optional<TensorJudgement::Repeat> repeat;
    const TensorPieces* replay = context_.candidate->Find("replay", id);
    if (replay == nullptr) return repeat;
    TTRACE_ASSIGN_OR_RETURN(const auto compared, CompareTensor(real, *replay));
    const bool bitwise = compared.total.bitwise_equal();
    repeat = {bitwise, bitwise ? 0 : compared.total.rel_err()};
    return repeat;
  }

  static double RepeatError(const TensorJudgement& t) {
    return t.repeat ? t.repeat->err : 0;
  }

  static Status JudgeReplicas(const TensorPieces& candidate,
                              TensorJudgement* out) {
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

  Status JudgeLegs(const TensorId& id, TensorJudgement* out,
                   std::atomic<int64_t>* bytes) const {
    const Side& ref = *context_.reference;
    const Side& cand = *context_.candidate;
    for (const LegPlan& plan : context_.plans) {
      // From other weights a module computes something else.
      if (plan.isolated &&
          (!InIsolation(id.role) || dirty_iterations_.contains(id.iteration))) {
        continue;
      }
      const TensorPieces* r = ref.FindSameValue(plan.reference_leg, id);
      const TensorPieces* c = cand.Find(plan.candidate_leg, id);
      if (r == nullptr || c == nullptr) continue;
      const auto measure =
          [&](const TensorPieces& a, const TensorPieces& b,
              const CompareOptions& options) -> Result<TensorComparison> {
        auto result = CompareTensor(a, b, options);
        if (result.ok()) {
          *bytes +=
              result->total.count * (Info(a.pieces.front()->dtype).itemsize +
                                     Info(b.pieces.front()->dtype).itemsize);
        }
        return result;
      };
      TTRACE_ASSIGN_OR_RETURN(const double element_scale,
                              ElementScale(plan, id, *r, bytes));
      CompareOptions aligned = context_.rows.OptionsFor(id.iteration);
      aligned.element_scale = element_scale;
      CompareOptions own;  // legs of the reference among each other
      own.element_scale = element_scale;
      auto compared = measure(*r, *c, aligned);
      if (!compared.ok()) {
        if (compared.error().code() != ErrorCode::kIncomparable) {
          return compared.error();
        }
        if (!plan.isolated) out->reason = compared.error().message();
        continue;
      }
      // What a replay of parts did not reach says nothing about the run.
      if (plan.isolated && !compared->complete()) continue;
      LegErrors errors;
      errors.leg = plan.name;
      errors.stats = compared->total;
      errors.unit_roundoff = plan.unit_roundoff;
      errors.noise_words = plan.noise_words;
      errors.vector_gradient = IsVectorGradient(id, *r);
      errors.longest_sum =
          id.role == Role::kGradLocal || id.role == Role::kGradReduced
              ? sums_.gradient
              : sums_.activation;
      errors.reference_ranks = sums_.reference_ranks;
      errors.candidate_ranks = sums_.candidate_ranks;
      MaximaErrors maxima;
      for (const std::string& leg : plan.noise_legs) {
        const TensorPieces* noisy = ref.FindSameValue(leg, id);
        if (noisy == nullptr) continue;
        TTRACE_ASSIGN_OR_RETURN(const auto noise, measure(*r, *noisy, own));
        errors.noise.push_back(noise.total.rel_err());
        maxima.noise.push_back(noise.total);
      }
      if (errors.vector_gradient && !plan.reference_hp_leg.empty()) {
        if (const auto* hp = ref.FindSameValue(plan.reference_hp_leg, id)) {
          TTRACE_ASSIGN_OR_RETURN(const auto r_hp, measure(*hp, *r, {}));
          errors.reference_hp = r_hp.total.rel_err();
        }
      }
      if (!plan.fp32_leg.empty()) {
        if (const auto* hp = ref.FindSameValue(plan.fp32_leg, id)) {
          TTRACE_ASSIGN_OR_RETURN(const auto c_hp, measure(*hp, *c, aligned));
          TTRACE_ASSIGN_OR_RETURN(const auto r_hp, measure(*hp, *r, own));
          errors.candidate_hp = c_hp.total.rel_err();
          errors.reference_hp = r_hp.total.rel_err();
          maxima.candidate_hp = c_hp.total;
          maxima.reference_hp = r_hp.total;
        }
      }
      if (plan.name == "real") errors.repeat_err = RepeatError(*out);
      LegJudgement leg = JudgeLeg(errors);
      if (element_scale > 0) {
        if (errors.repeat_err > 0) {
          // What a run does not repeat is one more sample of its noise.
          TTRACE_ASSIGN_OR_RETURN(const auto repeat,
                                  measure(*c, *cand.Find("replay", id), own));
          maxima.noise.push_back(repeat.total);
        }
        JudgeMaxima(errors, maxima, &leg);
      }
      if (errors.repeat_err > 0 && leg.headroom <= 1) {
        TTRACE_ASSIGN_OR_RETURN(const auto replayed,
                                measure(*r, *cand.Find("replay", id), aligned));
        if (auto once = JudgeOnce(errors, replayed.total)) {
          leg = *std::move(once);
        }
      }
      if (plan.isolated && IsExact(*c)) RequireEqual(&leg);
      std::set<int> ranks;
      for (const InstanceStats& instance : compared->instances) {
        if (instance.stats.rel_err() > leg.bound ||
            ExceedsMaxima(leg, instance.stats) ||
            instance.stats.nonfinite_differ > 0) {
          ranks.insert(instance.ranks.begin(), instance.ranks.end());
        }
      }
      leg.ranks.assign(ranks.begin(), ranks.end());
      if (!compared->complete()) {
        out->reason = fmt::format(
            "{} of its elements are missing in the candidate, {} in the "
            "reference, {} lie in overlapping pieces",
            compared->candidate_gap, compared->reference_gap,
            compared->candidate_overlap + compared->reference_overlap);
      }
      out->legs.push_back(std::move(leg));
      if (plan.isolated && out->replicas_differ) {
        TTRACE_RETURN_IF_ERROR(JudgeReplicasAlone(*c, out));
      }
    }
    return Done{};
  }

  // A fault that the run did not repeat must not pass as its non-determinism.
  // That shows in every rerun; here the real call is out of the bound that the
  // reference's noise alone gives, and its replay, the same code on the same
  // values, is well within. Nothing if it is otherwise.
  static std::optional<LegJudgement> JudgeOnce(LegErrors errors,
                                               const ErrorStats& replayed) {
    errors.repeat_err = 0;
    LegJudgement strict = JudgeLeg(errors);
    errors.stats = replayed;
    errors.candidate_hp = errors.reference_hp = std::nullopt;
    if (!strict.checkable || strict.headroom <= 1 ||
        JudgeLeg(errors).headroom > kSuspectHeadroom) {
      return std::nullopt;
    }
    strict.provenance += "; a replay of the same call is within";
    return strict;
  }

  // Copies that differ in the run as it was: do they on equal inputs?
  static Status JudgeReplicasAlone(const TensorPieces& alone,
                                   TensorJudgement* out) {
    TensorJudgement copies;
    copies.repeat = out->repeat;
    TTRACE_RETURN_IF_ERROR(JudgeReplicas(alone, &copies));
    if (!out->isolated) out->isolated = TensorJudgement::Isolated{};
    out->isolated->replicas_differ |= copies.replicas_differ;
    return Done{};
  }

  // What errors of single elements are relative to, beside the element itself:
  // the rms of the reference's tensor. 0: they are not measured, because no
  // noise leg bounds them, the value is judged exactly or not at all, or the
  // reference has no rms (all zero, not finite, in overlapping pieces).
  Result<double> ElementScale(const LegPlan& plan, const TensorId& id,
                              const TensorPieces& reference,
                              std::atomic<int64_t>* bytes) const {
    const bool bounded = std::any_of(
        plan.noise_legs.begin(), plan.noise_legs.end(), [&](const auto& leg) {
          return context_.reference->FindSameValue(leg, id) != nullptr;
        });
    if (!bounded || IsExact(reference) || HasNoTolerance(id.role)) return 0.0;
    const auto squares = SumOfSquares(reference);
    if (!squares.ok()) {
      if (squares.error().code() != ErrorCode::kIncomparable) {
        return squares.error();
      }
      return 0.0;
    }
    int64_t count = 1;
    for (const int64_t n : reference.global_shape()) count *= n;
    *bytes += count * Info(reference.pieces.front()->dtype).itemsize;
    if (count == 0 || !(*squares > 0) || !std::isfinite(*squares)) return 0.0;
    return std::sqrt(*squares / static_cast<double>(count));
  }

  // Without a reference: is a loss or a gradient finite? Activations may hold
  // infinities on purpose (masked scores), so they are not judged by that.
  static Status JudgeAlone(const TensorId& id, const TensorPieces& candidate,
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
    *bytes +=
        self->total.count * Info(candidate.pieces.front()->dtype).itemsize;
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

  // From the legs to the verdict.
  void Conclude(const TensorId& id, const TensorPieces& candidate,
                const TensorPieces& reference, TensorJudgement* out) const {
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

  static void Explain(TensorVerdict verdict, const char* reason,
                      TensorJudgement* out) {
    out->verdict = verdict;
    out->reason = reason;
    out->explained = true;
    out->deciding_leg = -1;
    out->headroom = 0;
  }

  bool ReplacedByGraft(const TensorId& id) const {
    return (id.role == Role::kParam && context_.candidate->weights_grafted()) ||
           (id.role == Role::kData && context_.candidate->data_grafted());
  }

  static void RequireEqual(LegJudgement* leg) {
    leg->bound = 0;
    leg->checkable = true;
    leg->headroom = leg->stats.bitwise_equal() ? 0 : kInfinity;
    leg->provenance = "must be equal";
  }

  size_t IsolatedLegs(const TensorJudgement& t) const {
    return static_cast<size_t>(
        std::count_if(t.legs.begin(), t.legs.end(), [&](const auto& leg) {
          return std::find(isolated_legs_.begin(), isolated_legs_.end(),
                           leg.leg) != isolated_legs_.end();
        }));
  }

  // Tokens, labels, masks, initial weights: there is no tolerance for these.
  static void JudgeExactly(const TensorPieces& reference,
                           TensorJudgement* out) {
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

  const JudgeContext& context_;
  std::set<int> dirty_iterations_;
  NotIsolatedIndex not_isolated_;
  std::vector<std::string> isolated_legs_;
  LongestSums sums_;
};

// Iterations that an ungrafted candidate starts from other weights than the
// reference, because an optimizer step amplified rounding.
Result<std::set<int>> DirtyIterations(const JudgeContext& context) {
  std::set<int> dirty;
  if (context.reference == nullptr || context.candidate->weights_grafted()) {
    return dirty;
  }
  for (const auto& [id, pieces] : context.candidate->real()) {
    if (id.role != Role::kParamUpdated || dirty.contains(id.iteration + 1)) {
      continue;
    }
    // What follows the last iteration that is judged decides nothing.
    if (context.iterations && id.iteration + 1 >= context.iterations->end) {
      continue;
    }
    const TensorPieces* reference = context.reference->Find("real", id);
    if (reference == nullptr ||
        reference->global_shape() != pieces.global_shape()) {
      continue;
    }
    TTRACE_ASSIGN_OR_RETURN(const auto compared,
                            CompareTensor(*reference, pieces));
    if (!compared.total.bitwise_equal()) dirty.insert(id.iteration + 1);
  }
  // Later iterations inherit.
  if (!dirty.empty()) {
    for (const int i : context.candidate->Iterations()) {
      if (i > *dirty.begin()) dirty.insert(i);
    }
  }
  return dirty;
}

// The reported norm against the one recomputed from the candidate's own
// reduced gradients, whatever the reference says.
Status JudgeGradNorms(const Side& candidate,
                      std::vector<TensorJudgement>* tensors) {
  for (TensorJudgement& t : *tensors) {
    if (t.id.role != Role::kGradNorm) continue;
    const TensorPieces* reported = candidate.Find("real", t.id);
    double sum = 0;
    bool any = false;
    for (const auto& [id, pieces] : candidate.real()) {
      if (id.role != Role::kGradReduced || id.iteration != t.id.iteration) {
        continue;
      }
      TTRACE_ASSIGN_OR_RETURN(const double squares, SumOfSquares(pieces));
      sum += squares;
      any = true;
    }
    const Shape shape = reported->global_shape();
    TTRACE_ASSIGN_OR_RETURN(const auto values,
                            ReadBox(*reported, Shape(shape.size(), 0), shape));
    if (!any || values.size() != 1) {
      t.verdict = TensorVerdict::kNotCheckable;
      t.reason = "no reduced gradients to recompute it from";
      continue;
    }
    const double expected = std::sqrt(sum);
    LegJudgement leg;
    leg.leg = "real";
    leg.err = expected == values[0]
                  ? 0
                  : std::fabs(values[0] - expected) / std::fabs(expected);
    leg.bound = kGradNormBound;
    leg.headroom = leg.err / leg.bound;
    leg.provenance = "recomputed from the candidate's reduced gradients";
    t.headroom = leg.headroom;
    t.legs = {leg};
    t.deciding_leg = 0;
    if (!(leg.headroom <= 1)) {
      t.verdict = TensorVerdict::kDiverged;
      t.reason = fmt::format(
          "the optimizer reports {:.9g}; the norm of the reduced gradients is "
          "{:.9g}",
          values[0], expected);
    } else if (!t.replicas_differ) {
      t.verdict =
          leg.err == 0 ? TensorVerdict::kBitwiseEqual : TensorVerdict::kWithin;
    }
  }
  return Done{};
}

}  // namespace

Result<JudgeOutcome> JudgeTensors(const JudgeContext& context) {
  JudgeOutcome out;
  TTRACE_ASSIGN_OR_RETURN(auto dirty, DirtyIterations(context));
  const TensorJudge judge(context, std::move(dirty));

  std::vector<
      std::pair<ExecutionKey, const std::pair<const TensorId, TensorPieces>*>>
      order;
  for (const auto& entry : context.candidate->real()) {
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

  out.tensors.resize(order.size());
  std::vector<std::optional<Error>> errors(order.size());
  std::atomic<int64_t> bytes = 0;
  std::atomic<int64_t> done = 0;
  const auto total = static_cast<int64_t>(order.size());
  tbb::task_arena arena(context.threads > 0 ? context.threads
                                            : tbb::task_arena::automatic);
  arena.execute([&] {
    tbb::parallel_for(size_t{0}, order.size(), [&](size_t i) {
      const auto& [id, pieces] = *order[i].second;
      out.tensors[i].order = static_cast<int64_t>(i);
      const Status status = judge.Judge(id, pieces, &out.tensors[i], &bytes);
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
  TTRACE_RETURN_IF_ERROR(JudgeGradNorms(*context.candidate, &out.tensors));
  for (const TensorJudgement& t : out.tensors) {
    if (t.replicas.groups > 0) ++out.replica_groups;
    if (t.repeat && !t.repeat->bitwise) ++out.not_repeatable;
  }

  out.bytes_compared = bytes;

  // What only the reference has.
  if (context.reference != nullptr) {
    for (const auto& [id, pieces] : context.reference->real()) {
      if (!context.Judges(id.iteration)) continue;
      if (context.candidate->Find("real", id) != nullptr) continue;
      if (id.pass == Pass::kRecompute) {
        // Its values are compared through the forward, if there is one.
        TensorId forward = id;
        forward.pass = Pass::kForward;
        if (context.candidate->Find("real", forward) != nullptr) continue;
      }
      TensorJudgement t;
      t.id = id;
      t.order = static_cast<int64_t>(out.tensors.size());
      t.verdict = TensorVerdict::kUnmatched;
      t.reason = "the candidate has no such tensor";
      out.tensors.push_back(std::move(t));
    }
  }
  return out;
}

}  // namespace ttrace
