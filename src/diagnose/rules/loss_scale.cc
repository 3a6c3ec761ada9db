// L: the loss, or the gradient that it sends into the model, is wrong by a
// constant for each micro-batch, while every activation is right.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "src/diagnose/constants.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/scaled_parts.h"
#include "src/diagnose/token_counts.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

// "1.03 x in micro-batch 0, 1 x in micro-batch 1".
std::string FactorWords(const std::map<int, double>& alpha, const char* where) {
  std::string out;
  size_t shown = 0;
  for (const auto& [number, factor] : alpha) {
    if (shown++ == 4) return out + ", ...";
    out += fmt::format("{}{:.5g} x {} {}", out.empty() ? "" : ", ", factor,
                       where, number);
  }
  return out;
}

// Of factors that are not all one.
std::string WhereFactorsDiffer(const ScaledParts& parts) {
  return (parts.by_rank
              ? "on each rank: " + FactorWords(parts.of_rank, "on rank")
              : "in each micro-batch: " +
                    FactorWords(parts.of_micro_batch, "in micro-batch")) +
         ", as where each divides by the number of its own rows or tokens";
}

struct LossFactors {
  std::map<int, double> of_micro_batch;
  // Micro-batches of the one run are not those of the other.
  bool cut_otherwise = false;
};

LossFactors FactorsOf(const ValueView& view) {
  LossFactors out;
  const std::map<int, double> theirs = ByMicroBatch(view.reference());
  const std::map<int, double> own = ByMicroBatch(view.candidate());
  out.cut_otherwise = theirs.size() != own.size();
  if (out.cut_otherwise) return out;
  for (const auto& [micro_batch, value] : theirs) {
    const auto found = own.find(micro_batch);
    if (found != own.end() && value != 0) {
      out.of_micro_batch[micro_batch] = found->second / value;
    }
  }
  return out;
}

std::optional<Diagnosis> OfTheLoss(const ValueView& view) {
  const ErrorStats& stats = view.leg().stats;
  if (!(stats.sum_sq_ref > 0)) return std::nullopt;
  const LossFactors factors = FactorsOf(view);
  const std::map<int, double>& alpha = factors.of_micro_batch;
  const double whole = stats.projection();
  // Any number is a multiple of another: parts have one factor if they scatter
  // by far less than it is away from 1.
  const double tolerance =
      std::fmin(2 * std::fmax(view.bound(), kStatisticsResolve),
                kMostScatter * std::fabs(whole - 1));
  const bool agree = std::all_of(alpha.begin(), alpha.end(), [&](auto& part) {
    return std::fabs(part.second - whole) <= tolerance * std::fabs(whole);
  });
  std::string words;
  if (agree) {
    if (alpha.size() > 1) words = " in every micro-batch";
    const std::string name = FactorNameWords(view.evidence(), whole, tolerance);
    // One number, of which no part confirms the factor, has to be a size.
    if (factors.cut_otherwise && name.empty()) return std::nullopt;
    words += name;
  } else {
    words = " (" + FactorWords(alpha, "in micro-batch") + ")";
    const std::string tokens =
        ExplainByTokens(alpha, TokenCounts(view.evidence()), tolerance);
    // Another loss, not the same one times something.
    if (tokens.empty()) return std::nullopt;
    words += "; " + tokens;
  }
  return Diagnosis{
      BugClass::kLossNormalisation,
      fmt::format("{} is {:.6g} x the reference{}, while every activation is "
                  "within bounds",
                  view.id().arg, whole, words),
      whole};
}

}  // namespace

std::optional<Diagnosis> LossNormalisation(const ValueView& view) {
  // The loss is the first that is wrong only of what is known.
  if (!view.evidence().outputs_are_known) {
    return std::nullopt;
  }
  if (view.id().role == Role::kLoss) return OfTheLoss(view);
  // The gradient arriving at the model's own output, or what is blamed on the
  // loss: nothing but the loss made it.
  if (view.id().role != Role::kGradOutput ||
      !(view.id().fqn.empty() || view.evidence().culprit->fqn == "loss" ||
        view.evidence().culprit->fqn.empty())) {
    return std::nullopt;
  }
  const ScaledParts* parts = view.factors();
  if (parts == nullptr || parts->ranks_differ) return std::nullopt;
  const double tolerance =
      std::fmin(kNamedWithin, 2 * std::fmax(view.bound(), kStatisticsResolve));
  const std::string tokens = ExplainByTokens(
      parts->of_micro_batch, TokenCounts(view.evidence()), tolerance);
  return Diagnosis{
      BugClass::kLossNormalisation,
      fmt::format(
          "the gradient that the loss sends into the model is {}, and "
          "every activation is within bounds{}{}{}",
          parts->agree
              ? fmt::format("{:.5g} x the reference's", parts->alpha) +
                    FactorNameWords(view.evidence(), parts->alpha, tolerance)
              : "the reference's times another constant " +
                    WhereFactorsDiffer(*parts),
          tokens.empty() ? "" : "; ", tokens,
          parts->sampled > 0 ? SampleWords(static_cast<size_t>(parts->sampled))
                             : ""),
      parts->alpha};
}

}  // namespace ttrace
