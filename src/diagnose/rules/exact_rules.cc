// Rules whose evidence is a count or a bit: N, R, G, and Z of inputs.

#include <fmt/format.h>

#include <set>

#include "src/base/rank_words.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/words.h"
#include "src/judge/reason_words.h"

namespace ttrace {

std::optional<Diagnosis> NonFinite(const Evidence& evidence) {
  if (!evidence.judgement->nonfinite) return std::nullopt;
  const LegJudgement* worst = nullptr;
  for (const LegJudgement& leg : evidence.judgement->legs) {
    if (leg.stats.nonfinite_cand > 0 &&
        (worst == nullptr ||
         leg.stats.nonfinite_cand > worst->stats.nonfinite_cand)) {
      worst = &leg;
    }
  }
  // Infinities that the reference has and the candidate lost are no N.
  if (worst == nullptr) return std::nullopt;
  return Diagnosis{
      BugClass::kNonFinite,
      fmt::format(
          "{} of {} elements are NaN or Inf (reference: {}) in leg {}; "
          "{} is the first to make any",
          worst->stats.nonfinite_cand, worst->stats.count,
          worst->stats.nonfinite_ref, worst->leg.name(),
          evidence.culprit->fqn.empty() ? "the model" : evidence.culprit->fqn),
      static_cast<double>(worst->stats.nonfinite_cand)};
}

std::optional<Diagnosis> ReplicasDiffer(const Evidence& evidence) {
  if (!evidence.judgement->replicas_differ) return std::nullopt;
  const ReplicaComparison& replicas = evidence.judgement->replicas;
  Diagnosis out{
      BugClass::kReplicasDiffer,
      fmt::format("{} of {} copies differ from the first, by up to {:.2g} "
                  "({}, along {}); in a correct run they are equal bit for bit",
                  replicas.differing, replicas.copies, replicas.worst_rel_err,
                  RankWords(replicas.differing_ranks),
                  fmt::join(replicas.mesh_dims, ", ")),
      replicas.worst_rel_err};
  // Which of them are right, where some are.
  std::set<int> right;
  std::set<int> wrong;
  for (const InstanceStats& part : evidence.instances) {
    (part.stats.rel_err() <= evidence.leg->bound ? right : wrong)
        .insert(part.ranks.begin(), part.ranks.end());
  }
  for (const int rank : wrong) right.erase(rank);
  if (!right.empty() && !wrong.empty()) {
    out.evidence += fmt::format(
        "; those of {} are the reference's, those of "
        "{} are not",
        RankWords({right.begin(), right.end()}),
        RankWords({wrong.begin(), wrong.end()}));
  }
  out.evidence += AttributeWords(evidence, "sequence_parallel");
  return out;
}

std::optional<Diagnosis> ReducedEarly(const Evidence& evidence) {
  if (evidence.reduced_early == nullptr) return std::nullopt;
  const EarlyReduction& early = *evidence.reduced_early;
  return Diagnosis{
      BugClass::kMissingPartialSum,
      fmt::format("a partial sum was reduced: {} came after the reduction had "
                  "begun ({})",
                  MicroBatchWords({early.late.begin(), early.late.end()}),
                  RankWords({early.ranks.begin(), early.ranks.end()})),
      static_cast<double>(early.late.size())};
}

std::optional<Diagnosis> OtherInputs(const Evidence& evidence) {
  if (evidence.culprit->stage != Stage::kInput ||
      evidence.judgement->replicas_differ) {
    return std::nullopt;
  }
  const Reason& reason = evidence.judgement->reason;
  if (reason.none()) return std::nullopt;
  return Diagnosis{BugClass::kOtherModelOrInputs,
                   "before any computation " + ReasonWords(reason),
                   evidence.leg == nullptr
                       ? 0
                       : static_cast<double>(evidence.leg->stats.mismatched)};
}

std::optional<Diagnosis> MisroutedRows(const Evidence& evidence) {
  const Reason& reason = evidence.judgement->reason;
  if (reason.kind != ReasonKind::kRoutedRows) return std::nullopt;
  return Diagnosis{BugClass::kPermutation, ReasonWords(reason), 0};
}

std::optional<Diagnosis> NotRepeatable(const Evidence& evidence) {
  const TensorJudgement& t = *evidence.judgement;
  // What is fed is not computed: who takes other items of an iterator in a
  // replay has no race.
  if (IsFed(t.id)) return std::nullopt;
  // A replay begins with empty gradients.
  const bool of_parameter =
      t.id.role == Role::kGradLocal || t.id.role == Role::kGradReduced;
  if (of_parameter && evidence.gradients_were_kept) return std::nullopt;
  const auto diagnosis = [](double value, const std::string& against) {
    return Diagnosis{
        BugClass::kNotRepeatable,
        fmt::format("a replay of the same iteration with the same weights and "
                    "data differs by {:.2g}; {}: a race, memory that was not "
                    "initialised, or a missing wait",
                    value, against),
        value};
  };
  for (const LegJudgement& leg : t.legs) {
    const Test* repeat = leg.Find(Statistic::kRepeat);
    if (repeat == nullptr || !(repeat->headroom > 1)) continue;
    return diagnosis(
        repeat->value,
        fmt::format("the reference's own noise allows {:.2g}", repeat->bound));
  }
  // SmallVector wrong elements, or an error that only an isolated module shows,
  // may leave the norm of the difference within its bound.
  if (evidence.leg == nullptr || evidence.leg->uncertain || !t.not_repeatable ||
      !(t.repeat->err >= kIrreproducible * evidence.leg->err)) {
    return std::nullopt;
  }
  return diagnosis(t.repeat->err,
                   fmt::format("its whole error is {:.2g}", evidence.leg->err));
}

std::optional<Diagnosis> WrongGradNorm(const Evidence& evidence) {
  const TensorJudgement& t = *evidence.judgement;
  if (t.id.role != Role::kGradNorm) return std::nullopt;
  if (!t.reason.none()) {
    return Diagnosis{BugClass::kGradientNorm, ReasonWords(t.reason),
                     evidence.leg == nullptr ? 0 : evidence.leg->err};
  }
  if (!t.replicas_differ) return std::nullopt;
  return Diagnosis{
      BugClass::kGradientNorm,
      fmt::format(
          "ranks report other norms of the same gradients, which are "
          "within bounds: {} of {} differ from the first, by up to {:.2g}",
          t.replicas.differing, t.replicas.copies, t.replicas.worst_rel_err),
      t.replicas.worst_rel_err};
}

}  // namespace ttrace
