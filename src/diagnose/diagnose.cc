#include "src/diagnose/diagnose.h"

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

// Every copy is wrong: one that is zero where it has no term of a sum, say, and
// not one of which others are right.
bool AllCopiesAreWrong(const Evidence& evidence) {
  if (evidence.leg == nullptr) return false;
  const std::vector<int>& wrong = evidence.leg->ranks;
  const std::vector<int>& copies = evidence.judgement->replicas.differing_ranks;
  return std::all_of(copies.begin(), copies.end(), [&](int rank) {
    return std::find(wrong.begin(), wrong.end(), rank) != wrong.end();
  });
}

}  // namespace

std::vector<Diagnosis> Diagnose(const Evidence& evidence) {
  // The order is the certainty: what is exact or counted stands before what is
  // fitted, what is fitted before what is inferred; and what explains before
  // what it explains. A missing partial sum explains why copies differ (P
  // before R), and so does a copy that is stale or scaled. Terms that are
  // nowhere are inferred from two correlations, so whatever equals something
  // goes before them. A loss that weights micro-batches wrongly explains a
  // factor (L before K only where the factors differ, and there K says
  // nothing).
  constexpr std::optional<Diagnosis> (*kRules[])(const Evidence&) = {
      NonFinite,
      OtherInputs,
      NotRepeatable,
      OtherMode,
      MisroutedRows,
      WrongGradNorm,
      ReducedEarly,
      MissingValue,
      ConstantFactor,
      AddedParameter,
      UnchangedParameter,
      MissingPartialSum,
      OtherIteration,
      Leftover,
      MicroBatchTerms,
      OtherPlace,
      MovedRows,
      SummedRows,
      MovedSlices,
      WrongTableRow,
      FlatOffset,
      ReorderedWithinRows,
      LostPrecision,
      RoundedOperands,
      LossNormalisation,
      FactorOfEachRow,
      WrongGroup,
      LostTerms,
      WrongModuleAttribute,
      ReplicasDiffer,
      OtherStructure,
  };
  constexpr size_t kMost = 3;
  std::vector<Diagnosis> out;
  // Other rules compare with the reference's value, which is another step's.
  if (evidence.step != nullptr) {
    if (auto step = WrongStep(evidence)) out.push_back(*std::move(step));
    if (auto copies = ReplicasDiffer(evidence)) {
      out.push_back(*std::move(copies));
    }
    return out;
  }
  for (const auto rule : kRules) {
    std::optional<Diagnosis> diagnosis = rule(evidence);
    if (!diagnosis) continue;
    const bool known =
        std::any_of(out.begin(), out.end(), [&](const Diagnosis& d) {
          return d.bug_class == diagnosis->bug_class;
        });
    if (known) continue;
    out.push_back(*std::move(diagnosis));
    if (out.size() == kMost) break;
  }
  // Terms of a sum explain the zeros in them.
  const auto at = [&](BugClass bug_class) {
    return std::find_if(out.begin(), out.end(), [&](const Diagnosis& d) {
      return d.bug_class == bug_class;
    });
  };
  const auto zeros = at(BugClass::kMissingOrZero);
  const auto terms = at(BugClass::kMissingPartialSum);
  if (zeros < terms && terms != out.end() && AllCopiesAreWrong(evidence)) {
    std::rotate(zeros, terms, terms + 1);
  }
  return out;
}

}  // namespace ttrace
