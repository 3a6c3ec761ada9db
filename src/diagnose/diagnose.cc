#include "src/diagnose/diagnose.h"

namespace ttrace {

std::vector<Diagnosis> Diagnose(const Evidence& evidence) {
  // The order is the certainty: what is exact first. A missing partial sum
  // explains why copies differ, so P stands before R (both hold).
  constexpr std::optional<Diagnosis> (*kRules[])(const Evidence&) = {
      NonFinite,     OtherInputs,    WrongGradNorm,
      MissingValue,  ConstantFactor, MissingPartialSum,
      WrongTableRow, ReplicasDiffer, LossNormalisation,
  };
  std::vector<Diagnosis> out;
  for (const auto rule : kRules) {
    if (std::optional<Diagnosis> diagnosis = rule(evidence)) {
      out.push_back(*std::move(diagnosis));
    }
  }
  return out;
}

}  // namespace ttrace
