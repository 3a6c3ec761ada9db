#include "src/judge/leg_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "src/compare/compare_tensor.h"
#include "src/judge/constants.h"
#include "src/judge/maxima.h"
#include "src/judge/rule.h"
#include "src/measure/exact_values.h"

namespace ttrace {
namespace {

bool IsParameterGradient(Role role) {
  return role == Role::kGradLocal || role == Role::kGradReduced;
}

// A fault that the run did not repeat must not pass as its non-determinism.
// That shows in every rerun; here the real call is out of the bound that the
// reference's noise alone gives, and its replay, the same code on the same
// values, is well within. Nothing if it is otherwise.
std::optional<LegJudgement> JudgeOnce(LegErrors errors,
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

// Ranks that hold an instance which is out of bound by itself.
std::vector<int> FaultyRanks(const LegJudgement& leg,
                             const std::vector<InstanceStats>& instances) {
  std::set<int> ranks;
  for (const InstanceStats& instance : instances) {
    if (instance.stats.rel_err() > leg.bound ||
        ExceedsMaxima(leg, instance.stats) ||
        instance.stats.nonfinite_differ > 0) {
      ranks.insert(instance.ranks.begin(), instance.ranks.end());
    }
  }
  return {ranks.begin(), ranks.end()};
}

// The measurements of one tensor in one leg.
class Measurement {
 public:
  // `reference` and `candidate`: the two values that are judged.
  Measurement(const Side& side, const LegPlan& plan, const TensorId& id,
              const TensorPieces& reference, const TensorPieces& candidate,
              std::atomic<int64_t>* bytes)
      : side_(side),
        plan_(plan),
        id_(id),
        reference_(reference),
        candidate_(candidate),
        bytes_(bytes) {}

  // REQUIRES: called first. `rows` says which rows of the candidate are which.
  Status SetOptions(CompareOptions rows) {
    TTRACE_ASSIGN_OR_RETURN(own_.element_scale, ElementScale());
    aligned_ = std::move(rows);
    aligned_.element_scale = own_.element_scale;
    return Done{};
  }

  Result<TensorComparison> Compare() const {
    return Measure(reference_, candidate_, aligned_);
  }

  // `errors`: what is known of the run as a whole. `replay`: the candidate's,
  // null unless it differs from its real leg.
  Result<LegJudgement> Judge(LegErrors errors,
                             const TensorPieces* replay) const {
    MaximaErrors maxima;
    TTRACE_RETURN_IF_ERROR(MeasureNoise(&errors, &maxima));
    TTRACE_RETURN_IF_ERROR(MeasureFp32(&errors, &maxima));
    LegJudgement leg = JudgeLeg(errors);
    if (own_.element_scale > 0) {
      if (replay != nullptr) {
        // What a run does not repeat is one more sample of its noise.
        TTRACE_ASSIGN_OR_RETURN(const auto repeat,
                                Measure(candidate_, *replay, own_));
        maxima.noise.push_back(repeat.total);
      }
      JudgeMaxima(errors, maxima, &leg);
    }
    if (replay != nullptr && leg.headroom <= 1) {
      TTRACE_ASSIGN_OR_RETURN(const auto replayed,
                              Measure(reference_, *replay, aligned_));
      if (auto once = JudgeOnce(errors, replayed.total)) leg = *std::move(once);
    }
    return leg;
  }

 private:
  Result<TensorComparison> Measure(const TensorPieces& a, const TensorPieces& b,
                                   const CompareOptions& options) const {
    auto result = CompareTensor(a, b, options);
    if (result.ok()) {
      *bytes_ += result->total.count * (Info(a.pieces.front()->dtype).itemsize +
                                        Info(b.pieces.front()->dtype).itemsize);
    }
    return result;
  }

  Status MeasureNoise(LegErrors* errors, MaximaErrors* maxima) const {
    for (const std::string& leg : plan_.noise_legs) {
      const TensorPieces* noisy = side_.FindSameValue(leg, id_);
      if (noisy == nullptr) continue;
      TTRACE_ASSIGN_OR_RETURN(const auto noise,
                              Measure(reference_, *noisy, own_));
      errors->noise.push_back(noise.total.rel_err());
      maxima->noise.push_back(noise.total);
    }
    return Done{};
  }

  Status MeasureFp32(LegErrors* errors, MaximaErrors* maxima) const {
    if (errors->vector_gradient && !plan_.reference_hp_leg.empty()) {
      if (const auto* hp = side_.FindSameValue(plan_.reference_hp_leg, id_)) {
        TTRACE_ASSIGN_OR_RETURN(const auto r_hp, Measure(*hp, reference_, {}));
        errors->reference_hp = r_hp.total.rel_err();
      }
    }
    if (plan_.fp32_leg.empty()) return Done{};
    if (const auto* hp = side_.FindSameValue(plan_.fp32_leg, id_)) {
      TTRACE_ASSIGN_OR_RETURN(const auto c_hp,
                              Measure(*hp, candidate_, aligned_));
      TTRACE_ASSIGN_OR_RETURN(const auto r_hp, Measure(*hp, reference_, own_));
      errors->candidate_hp = c_hp.total.rel_err();
      errors->reference_hp = r_hp.total.rel_err();
      maxima->candidate_hp = c_hp.total;
      maxima->reference_hp = r_hp.total;
    }
    return Done{};
  }

  // What errors of single elements are relative to, beside the element itself:
  // the rms of the reference's tensor. 0: they are not measured, because no
  // noise leg bounds them, the value is judged exactly or not at all, or the
  // reference has no rms (all zero, not finite, in overlapping pieces).
  Result<double> ElementScale() const {
    const bool bounded = std::any_of(
        plan_.noise_legs.begin(), plan_.noise_legs.end(), [&](const auto& leg) {
          return side_.FindSameValue(leg, id_) != nullptr;
        });
    if (!bounded || IsExact(reference_) || HasNoTolerance(id_.role)) return 0.0;
    const auto squares = SumOfSquares(reference_);
    if (!squares.ok()) {
      if (squares.error().code() != ErrorCode::kIncomparable) {
        return squares.error();
      }
      return 0.0;
    }
    int64_t count = 1;
    for (const int64_t n : reference_.global_shape()) count *= n;
    *bytes_ += count * Info(reference_.pieces.front()->dtype).itemsize;
    if (count == 0 || !(*squares > 0) || !std::isfinite(*squares)) return 0.0;
    return std::sqrt(*squares / static_cast<double>(count));
  }

  const Side& side_;  // the reference
  const LegPlan& plan_;
  const TensorId& id_;
  const TensorPieces& reference_;
  const TensorPieces& candidate_;
  std::atomic<int64_t>* bytes_;
  CompareOptions own_;      // legs of the reference among each other
  CompareOptions aligned_;  // the candidate against one of these
};

}  // namespace

void RequireEqual(LegJudgement* leg) {
  leg->bound = 0;
  leg->checkable = true;
  leg->headroom =
      leg->stats.bitwise_equal() ? 0 : std::numeric_limits<double>::infinity();
  leg->provenance = "must be equal";
}

LegJudge::LegJudge(const Side& reference, const Side& candidate,
                   const RowAlignment& rows)
    : reference_(reference),
      candidate_(candidate),
      rows_(rows),
      sums_(FindLongestSums(reference, candidate)) {}

Result<LegJudge::Outcome> LegJudge::Judge(const LegPlan& plan,
                                          const TensorId& id, double repeat_err,
                                          std::atomic<int64_t>* bytes) const {
  Outcome out;
  const TensorPieces* r = reference_.FindSameValue(plan.reference_leg, id);
  const TensorPieces* c = candidate_.Find(plan.candidate_leg, id);
  if (r == nullptr || c == nullptr) return out;
  Measurement measurement(reference_, plan, id, *r, *c, bytes);
  TTRACE_RETURN_IF_ERROR(
      measurement.SetOptions(rows_.OptionsFor(id.iteration)));
  const auto compared = measurement.Compare();
  if (!compared.ok()) {
    if (compared.error().code() != ErrorCode::kIncomparable) {
      return compared.error();
    }
    if (!plan.isolated) out.trouble = compared.error().message();
    return out;
  }
  if (!compared->complete()) {
    // What a replay of parts did not reach says nothing about the run.
    if (plan.isolated) return out;
    out.trouble = fmt::format(
        "{} of its elements are missing in the candidate, {} in the "
        "reference, {} lie in overlapping pieces",
        compared->candidate_gap, compared->reference_gap,
        compared->candidate_overlap + compared->reference_overlap);
  }
  const bool of_parameter = IsParameterGradient(id.role);
  LegErrors errors;
  errors.leg = plan.name;
  errors.stats = compared->total;
  errors.unit_roundoff = plan.unit_roundoff;
  errors.noise_words = plan.noise_words;
  errors.vector_gradient = of_parameter && r->global_shape().size() <= 1;
  errors.longest_sum = of_parameter ? sums_.gradient : sums_.activation;
  errors.reference_ranks = sums_.reference_ranks;
  errors.candidate_ranks = sums_.candidate_ranks;
  const TensorPieces* replay = nullptr;
  if (plan.name == "real" && repeat_err > 0) {
    errors.repeat_err = repeat_err;
    replay = candidate_.Find("replay", id);
  }
  TTRACE_ASSIGN_OR_RETURN(out.leg,
                          measurement.Judge(std::move(errors), replay));
  if (plan.isolated && IsExact(*c)) RequireEqual(&*out.leg);
  out.leg->ranks = FaultyRanks(*out.leg, compared->instances);
  return out;
}

}  // namespace ttrace
