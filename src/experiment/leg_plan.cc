#include "src/experiment/leg_plan.h"

#include <fmt/format.h>

#include <utility>

#include "src/experiment/graft_source.h"

namespace ttrace {
namespace {

// The leg of `side` that computed in fp32 or better; empty: none.
Leg Fp32Leg(const Side& side, DType compute) {
  if (side.HasLeg(kFp32)) return kFp32;
  return UnitRoundoff(compute) <= UnitRoundoff(DType::kF32) ? kReal : Leg();
}

// The candidate's isolated leg `name` against the reference's `plain` leg, with
// the noise legs that belong to it.
LegPlan IsolatedPlan(const Leg& name, const Leg& plain, const Side& reference,
                     double unit_roundoff) {
  LegPlan plan;
  plan.name = plan.candidate_leg = name;
  plan.reference_leg = plain;
  plan.unit_roundoff = unit_roundoff;
  plan.isolated = true;
  plan.noise_legs =
      reference.NoiseLegsOf(plain == kFp32 ? kFp32Isolated : kIsolated);
  if (plain == kReal && reference.HasLeg(kFp32))
    plan.reference_fp32_leg = kFp32;
  if (plan.noise_legs.empty()) {
    plan.noise_legs = reference.NoiseLegsOf(plain);
    plan.borrowed_noise = true;
  }
  return plan;
}

LegPlan RealPlan(const Side& reference, double unit_roundoff) {
  LegPlan plan;
  plan.name = plan.reference_leg = plan.candidate_leg = kReal;
  plan.noise_legs = reference.NoiseLegsOf(kReal);
  if (reference.HasLeg(kFp32)) plan.fp32_leg = kFp32;
  plan.unit_roundoff = unit_roundoff;
  return plan;
}

LegPlan Fp32Plan(const Leg& reference_leg, const Leg& candidate_leg,
                 const Side& reference) {
  LegPlan plan;
  plan.name = kFp32;
  plan.reference_leg = reference_leg;
  plan.candidate_leg = candidate_leg;
  plan.noise_legs = reference.NoiseLegsOf(reference_leg);
  plan.unit_roundoff = UnitRoundoff(DType::kF32);
  return plan;
}

// Why no isolated leg of the candidate can be used; nothing if they can.
struct IsolationTrouble {
  std::string reason;
  std::string way_out;
};
std::optional<IsolationTrouble> FindIsolationTrouble(const Side& reference,
                                                     const Side& candidate) {
  const bool from_another = GraftedFromAnother(candidate, reference);
  IsolationTrouble out;
  out.way_out = from_another ? "record it with --graft and this reference"
                             : "record it with --graft";
  if (!candidate.facts().weights_grafted) {
    out.reason = "its modules were given its own weights, not the reference's";
  } else if (!candidate.facts().data_grafted) {
    out.reason =
        "the data that the model is fed were not replaced by the reference's";
  } else if (from_another) {
    out.reason = "its modules were given the values of another reference";
  } else {
    return std::nullopt;
  }
  return out;
}

// Adds the plan of an isolated leg.
void AddIsolated(LegPlan plan, const std::optional<IsolationTrouble>& trouble,
                 LegPlans* out) {
  if (!trouble) {
    out->plans.push_back(std::move(plan));
    return;
  }
  out->notes.push_back({NoteKind::kLegNotUsed,
                        fmt::format("leg {} of the candidate is not used: {}",
                                    plan.name.name(), trouble->reason),
                        trouble->way_out});
}

}  // namespace

LegPlans PlanLegs(const Side& reference, const Side& candidate) {
  LegPlans out;
  const DType ref_dtype = reference.ComputeDType().value_or(DType::kF32);
  const DType cand_dtype = candidate.ComputeDType().value_or(DType::kF32);
  const Leg ref_fp32 = Fp32Leg(reference, ref_dtype);
  const Leg cand_fp32 = Fp32Leg(candidate, cand_dtype);

  if (ref_dtype == cand_dtype) {
    out.plans.push_back(RealPlan(reference, UnitRoundoff(ref_dtype)));
  } else {
    out.notes.push_back(
        {NoteKind::kPrecisions,
         fmt::format("the reference computes in {} and the candidate in {}: "
                     "their own runs are not compared, only fp32 legs",
                     Info(ref_dtype).torch_name, Info(cand_dtype).torch_name),
         ""});
  }

  const bool same_as_real =
      ref_fp32 == kReal && cand_fp32 == kReal && ref_dtype == cand_dtype;
  if (!ref_fp32.empty() && !cand_fp32.empty() && !same_as_real) {
    out.plans.push_back(Fp32Plan(ref_fp32, cand_fp32, reference));
  } else if (!same_as_real) {
    out.notes.push_back(
        {NoteKind::kNoFp32Leg,
         fmt::format("no fp32 leg of the {}: bugs that hide in rounding noise "
                     "are not seen",
                     ref_fp32.empty() ? "reference" : "candidate"),
         ""});
  }
  // The candidate was given values of the reference's leg of the same
  // precision; other values than those it was given are no yardstick.
  const bool low = ref_dtype == cand_dtype && candidate.HasLeg(kIsolated);
  const bool high = !ref_fp32.empty() && candidate.HasLeg(kFp32Isolated);
  if (!low && !high) return out;
  const auto trouble = FindIsolationTrouble(reference, candidate);
  if (low) {
    AddIsolated(
        IsolatedPlan(kIsolated, kReal, reference, UnitRoundoff(ref_dtype)),
        trouble, &out);
  }
  if (high) {
    AddIsolated(IsolatedPlan(kFp32Isolated, ref_fp32, reference,
                             UnitRoundoff(DType::kF32)),
                trouble, &out);
  }
  return out;
}

std::optional<LegPlan> PlanOfLeg(const Side& reference,
                                 const Leg& candidate_leg) {
  const DType dtype = reference.ComputeDType().value_or(DType::kF32);
  const Leg fp32 = Fp32Leg(reference, dtype);
  if (candidate_leg == kReal || candidate_leg == kReplay) {
    return RealPlan(reference, UnitRoundoff(dtype));
  }
  if (candidate_leg == kIsolated) {
    return IsolatedPlan(candidate_leg, kReal, reference, UnitRoundoff(dtype));
  }
  if (fp32.empty()) return std::nullopt;
  if (candidate_leg == kFp32) return Fp32Plan(fp32, candidate_leg, reference);
  if (candidate_leg == kFp32Isolated) {
    return IsolatedPlan(candidate_leg, fp32, reference,
                        UnitRoundoff(DType::kF32));
  }
  return std::nullopt;
}

}  // namespace ttrace
