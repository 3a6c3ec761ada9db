#include "src/diagnose/diagnose.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "src/diagnose/constants.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/value_view.h"

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

using RuleOfFacts = std::optional<Diagnosis> (*)(const Evidence&);
using RuleOfValues = std::optional<Diagnosis> (*)(const ValueView&);

// The order is the certainty: what is exact or counted stands before what is
// fitted, what is fitted before what is inferred; and what explains before
// what it explains. A missing partial sum explains why copies differ (P
// before R), and so does a copy that is stale or scaled. Terms that are
// nowhere are inferred from two correlations, so whatever equals something
// goes before them. A loss that weights micro-batches wrongly explains a
// factor (L before K only where the factors differ, and there K says
// nothing).
constexpr std::variant<RuleOfFacts, RuleOfValues> kRules[] = {
    NonFinite,
    OtherInputs,
    NotRepeatable,
    OtherMode,
    MisroutedRows,
    WrongGradNorm,
    ReducedEarly,
    ClearedEarly,
    MissingValue,
    AbsentGradient,
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

// The step is another one than the reference's, with which all other rules
// compare.
std::vector<Diagnosis> DiagnoseStep(const Evidence& evidence) {
  std::vector<Diagnosis> out;
  for (const auto rule : {WrongStep, ReplicasDiffer}) {
    if (auto diagnosis = rule(evidence)) out.push_back(*std::move(diagnosis));
  }
  return out;
}

bool Names(const std::vector<Diagnosis>& classes, BugClass bug_class) {
  return std::any_of(classes.begin(), classes.end(), [&](const Diagnosis& d) {
    return d.bug_class == bug_class;
  });
}

// Terms of a sum explain the zeros in them.
void PutTermsBeforeZeros(std::vector<Diagnosis>* classes) {
  const auto at = [&](BugClass bug_class) {
    return std::find_if(
        classes->begin(), classes->end(),
        [&](const Diagnosis& d) { return d.bug_class == bug_class; });
  };
  const auto zeros = at(BugClass::kMissingOrZero);
  const auto terms = at(BugClass::kMissingPartialSum);
  if (zeros < terms && terms != classes->end()) {
    std::rotate(zeros, terms, terms + 1);
  }
}

}  // namespace

std::vector<Diagnosis> Diagnose(const Evidence& evidence) {
  if (evidence.step != nullptr) return DiagnoseStep(evidence);
  std::optional<ValueView> view;
  if (ValueView::IsPossible(evidence)) view.emplace(evidence);
  std::vector<Diagnosis> out;
  for (const auto& rule : kRules) {
    std::optional<Diagnosis> diagnosis;
    if (const RuleOfFacts* of_facts = std::get_if<RuleOfFacts>(&rule)) {
      diagnosis = (*of_facts)(evidence);
    } else if (view) {
      diagnosis = std::get<RuleOfValues>(rule)(*view);
    }
    if (!diagnosis || Names(out, diagnosis->bug_class)) continue;
    out.push_back(*std::move(diagnosis));
    if (out.size() == kMostClasses) break;
  }
  if (AllCopiesAreWrong(evidence)) PutTermsBeforeZeros(&out);
  return out;
}

std::optional<Diagnosis> DiagnoseLoss(const Evidence& evidence) {
  if (!ValueView::IsPossible(evidence)) return std::nullopt;
  return LossNormalisation(ValueView(evidence));
}

}  // namespace ttrace
