#include "src/pipeline/leg_plan.h"

#include <fmt/format.h>

namespace ttrace {
namespace {

// The leg of `side` that computed in fp32 or better; empty: none.
std::string Fp32Leg(const Side& side, DType compute) {
  if (side.HasLeg("fp32")) return "fp32";
  return UnitRoundoff(compute) <= UnitRoundoff(DType::kF32) ? "real" : "";
}

}  // namespace

LegPlans PlanLegs(const Side& reference, const Side& candidate) {
  LegPlans out;
  const DType ref_dtype = reference.ComputeDType().value_or(DType::kF32);
  const DType cand_dtype = candidate.ComputeDType().value_or(DType::kF32);
  const std::string ref_fp32 = Fp32Leg(reference, ref_dtype);
  const std::string cand_fp32 = Fp32Leg(candidate, cand_dtype);

  if (ref_dtype == cand_dtype) {
    LegPlan real;
    real.name = real.reference_leg = real.candidate_leg = "real";
    real.noise_legs = reference.NoiseLegs("noise");
    if (ref_fp32 == "fp32") real.fp32_leg = ref_fp32;
    real.unit_roundoff = UnitRoundoff(ref_dtype);
    out.plans.push_back(std::move(real));
  } else {
    out.notes.push_back(fmt::format(
        "the reference computes in {} and the candidate in {}: their own runs "
        "are not compared, only fp32 legs",
        Info(ref_dtype).torch_name, Info(cand_dtype).torch_name));
  }

  const bool same_as_real =
      ref_fp32 == "real" && cand_fp32 == "real" && ref_dtype == cand_dtype;
  if (!ref_fp32.empty() && !cand_fp32.empty() && !same_as_real) {
    LegPlan fp32;
    fp32.name = "fp32";
    fp32.reference_leg = ref_fp32;
    fp32.candidate_leg = cand_fp32;
    fp32.noise_legs =
        reference.NoiseLegs(ref_fp32 == "fp32" ? "fp32.noise" : "noise");
    fp32.unit_roundoff = UnitRoundoff(DType::kF32);
    out.plans.push_back(std::move(fp32));
  } else if (!same_as_real) {
    out.notes.push_back(fmt::format(
        "no fp32 leg of the {}: bugs that hide in rounding noise are not seen",
        ref_fp32.empty() ? "reference" : "candidate"));
  }
  return out;
}

}  // namespace ttrace
