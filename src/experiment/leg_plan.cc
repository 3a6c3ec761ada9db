#include "src/experiment/leg_plan.h"

#include <fmt/format.h>

#include <utility>

#include "src/experiment/graft_source.h"

namespace ttrace {
namespace {

// The leg of `side` that computed in fp32 or better; empty: none.
std::string Fp32Leg(const Side& side, DType compute) {
  if (side.HasLeg("fp32")) return "fp32";
  return UnitRoundoff(compute) <= UnitRoundoff(DType::kF32) ? "real" : "";
}

// The candidate's isolated leg `name` against the reference's `plain` leg, with
// the noise legs that belong to it.
LegPlan IsolatedPlan(const std::string& name, const std::string& plain,
                     const Side& reference, double unit_roundoff) {
  LegPlan plan;
  plan.name = plan.candidate_leg = name;
  plan.reference_leg = plain;
  plan.unit_roundoff = unit_roundoff;
  plan.isolated = true;
  const std::string prefix = plain == "fp32" ? "fp32." : "";
  plan.noise_legs = reference.NoiseLegs(prefix + "isolated.noise");
  if (plain == "real" && reference.HasLeg("fp32")) {
    plan.reference_hp_leg = "fp32";
  }
  if (plan.noise_legs.empty()) {
    plan.noise_legs = reference.NoiseLegs(prefix + "noise");
    plan.borrowed_noise = true;
  }
  return plan;
}

LegPlan RealPlan(const Side& reference, double unit_roundoff) {
  LegPlan plan;
  plan.name = plan.reference_leg = plan.candidate_leg = "real";
  plan.noise_legs = reference.NoiseLegs("noise");
  if (reference.HasLeg("fp32")) plan.fp32_leg = "fp32";
  plan.unit_roundoff = unit_roundoff;
  return plan;
}

LegPlan Fp32Plan(const std::string& reference_leg,
                 const std::string& candidate_leg, const Side& reference) {
  LegPlan plan;
  plan.name = "fp32";
  plan.reference_leg = reference_leg;
  plan.candidate_leg = candidate_leg;
  plan.noise_legs =
      reference.NoiseLegs(reference_leg == "fp32" ? "fp32.noise" : "noise");
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
                                    plan.name, trouble->reason),
                        trouble->way_out});
}

}  // namespace

LegPlans PlanLegs(const Side& reference, const Side& candidate) {
  LegPlans out;
  const DType ref_dtype = reference.ComputeDType().value_or(DType::kF32);
  const DType cand_dtype = candidate.ComputeDType().value_or(DType::kF32);
  const std::string ref_fp32 = Fp32Leg(reference, ref_dtype);
  const std::string cand_fp32 = Fp32Leg(candidate, cand_dtype);

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
      ref_fp32 == "real" && cand_fp32 == "real" && ref_dtype == cand_dtype;
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
  const bool low = ref_dtype == cand_dtype && candidate.HasLeg("isolated");
  const bool high = !ref_fp32.empty() && candidate.HasLeg("fp32.isolated");
  if (!low && !high) return out;
  const auto trouble = FindIsolationTrouble(reference, candidate);
  if (low) {
    AddIsolated(
        IsolatedPlan("isolated", "real", reference, UnitRoundoff(ref_dtype)),
        trouble, &out);
  }
  if (high) {
    AddIsolated(IsolatedPlan("fp32.isolated", ref_fp32, reference,
                             UnitRoundoff(DType::kF32)),
                trouble, &out);
  }
  return out;
}

std::optional<LegPlan> PlanOfLeg(const Side& reference,
                                 const std::string& candidate_leg) {
  const DType dtype = reference.ComputeDType().value_or(DType::kF32);
  const std::string fp32 = Fp32Leg(reference, dtype);
  if (candidate_leg == "real" || candidate_leg == "replay") {
    return RealPlan(reference, UnitRoundoff(dtype));
  }
  if (candidate_leg == "isolated") {
    return IsolatedPlan(candidate_leg, "real", reference, UnitRoundoff(dtype));
  }
  if (fp32.empty()) return std::nullopt;
  if (candidate_leg == "fp32") return Fp32Plan(fp32, candidate_leg, reference);
  if (candidate_leg == "fp32.isolated") {
    return IsolatedPlan(candidate_leg, fp32, reference,
                        UnitRoundoff(DType::kF32));
  }
  return std::nullopt;
}

}  // namespace ttrace
