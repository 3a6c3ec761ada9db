// Rules whose evidence is a count or a bit: N, R, G, and Z of inputs.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/base/rank_words.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/words.h"
#include "src/judge/reason_words.h"

namespace ttrace {

namespace {

// Where the sides disagree about what is not finite.
struct Disagreeing {
  int64_t made = 0;   // NaN or Inf where the reference is finite
  int64_t lost = 0;   // finite where the reference is not
  int64_t other = 0;  // another sign, or NaN for Inf

  int64_t all() const { return made + lost + other; }
};

// Counts of each side allow no other, or do not tell.
std::optional<Disagreeing> FromCounts(const ErrorStats& stats) {
  // Without a reference: the candidate is compared with itself.
  if (stats.nonfinite_differ == 0) return Disagreeing{stats.nonfinite_cand};
  const int64_t more = stats.nonfinite_cand - stats.nonfinite_ref;
  const int64_t rest = stats.nonfinite_differ - std::llabs(more);
  // Two may be one that was made and one that was lost.
  if (rest > 1) return std::nullopt;
  return Disagreeing{std::max<int64_t>(more, 0), std::max<int64_t>(-more, 0),
                     rest};
}

// Nothing if the sample lacks some, or is of another copy.
std::optional<Disagreeing> FromSample(const SampledPair* pair,
                                      const ErrorStats& stats) {
  if (pair == nullptr) return std::nullopt;
  Disagreeing out;
  for (size_t i = 0; i < pair->reference.size(); ++i) {
    const double r = pair->reference[i];
    const double c = pair->candidate[i];
    if (std::isfinite(r)) {
      out.made += std::isfinite(c) ? 0 : 1;
    } else if (std::isfinite(c)) {
      ++out.lost;
    } else {
      out.other += r == c || (std::isnan(r) && std::isnan(c)) ? 0 : 1;
    }
  }
  if (out.all() != stats.nonfinite_differ) return std::nullopt;
  return out;
}

std::optional<Disagreeing> FromValues(const Evidence& evidence,
                                      const ErrorStats& stats) {
  if (!ValueView::IsPossible(evidence)) return std::nullopt;
  const ValueView view(evidence);
  if (const auto out = FromSample(view.sample(), stats)) return out;
  const Suspect* suspect = view.suspect();
  return FromSample(suspect == nullptr ? nullptr : &suspect->pair, stats);
}

// "60 of 144 elements are NaN or Inf (reference: 0)".
std::string NonFiniteWords(const ErrorStats& stats,
                           const std::optional<Disagreeing>& of) {
  if (!of) {
    return fmt::format(
        "{} of {} elements are NaN or Inf in one run and finite in the other, "
        "or another of these ({} here, {} in the reference)",
        stats.nonfinite_differ, stats.count, stats.nonfinite_cand,
        stats.nonfinite_ref);
  }
  std::vector<std::string> words;
  if (of->made > 0 && stats.nonfinite_ref > 0) {
    words.push_back(fmt::format(
        "{} of {} elements are NaN or Inf where the reference is finite",
        of->made, stats.count));
  } else if (of->made > 0) {
    words.push_back(
        fmt::format("{} of {} elements are NaN or Inf (reference: {})",
                    of->made, stats.count, stats.nonfinite_ref));
  }
  if (of->lost > 0) {
    words.push_back(
        fmt::format("{} of {} elements that are NaN or Inf in the reference "
                    "are finite",
                    of->lost, stats.nonfinite_ref));
  }
  if (of->other > 0) {
    words.push_back(fmt::format(
        "{} of {} elements that are NaN or Inf in the reference are Inf of "
        "the other sign, or NaN for Inf or Inf for NaN",
        of->other, stats.nonfinite_ref));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

}  // namespace

std::optional<Diagnosis> NonFinite(const Evidence& evidence) {
  if (!evidence.judgement->nonfinite) return std::nullopt;
  const LegJudgement* worst = nullptr;
  for (const LegJudgement& leg : evidence.judgement->legs) {
    const auto size = [](const LegJudgement& l) {
      return std::pair(l.stats.nonfinite_differ, l.stats.nonfinite_cand);
    };
    if (leg.stats.nonfinite_cand > 0 &&
        (worst == nullptr || size(leg) > size(*worst))) {
      worst = &leg;
    }
  }
  // What is finite everywhere has lost something: other rules tell what.
  if (worst == nullptr) return std::nullopt;
  auto of = FromCounts(worst->stats);
  if (!of && worst == evidence.leg) of = FromValues(evidence, worst->stats);
  const bool made = of && of->made > 0;
  return Diagnosis{
      BugClass::kNonFinite,
      fmt::format(
          "{} in leg {}; {} is the first to {}",
          NonFiniteWords(worst->stats, of), worst->leg.name(),
          evidence.culprit->fqn.empty() ? "the model" : evidence.culprit->fqn,
          made ? "make any" : "differ so"),
      static_cast<double>(!of    ? worst->stats.nonfinite_differ
                          : made ? of->made
                                 : of->all())};
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

std::optional<Diagnosis> ClearedEarly(const Evidence& evidence) {
  if (evidence.cleared == nullptr) return std::nullopt;
  const Clearing& clearing = *evidence.cleared;
  const int64_t last = *clearing.after.rbegin();
  return Diagnosis{
      BugClass::kStaleValue,
      fmt::format("the loop clears it after {} of the iteration, before any "
                  "step ({}): what was there reaches no weight; the "
                  "reference's loop does not",
                  last == 1 ? "the first micro-batch"
                            : fmt::format("{} micro-batches", last),
                  RankWords({clearing.ranks.begin(), clearing.ranks.end()})),
      static_cast<double>(last)};
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
                   reason.kind == ReasonKind::kElementsDiffer
                       ? static_cast<double>(reason.counts.front())
                       : std::numeric_limits<double>::quiet_NaN()};
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
        fmt::format("a rerun of the same iteration with the same weights and "
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
