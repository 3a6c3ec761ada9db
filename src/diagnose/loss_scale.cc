// L: the loss, or the gradient that it sends into the model, is wrong by a
// constant for each micro-batch, while every activation is right.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "src/diagnose/diagnose.h"
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

LossFactors FactorsOf(const Evidence& evidence) {
  LossFactors out;
  if (evidence.reference == nullptr || evidence.candidate == nullptr) {
    return out;
  }
  const std::map<int, double> theirs = ByMicroBatch(*evidence.reference);
  const std::map<int, double> own = ByMicroBatch(*evidence.candidate);
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

std::optional<Diagnosis> OfTheLoss(const Evidence& evidence) {
  const ErrorStats& stats = evidence.leg->stats;
  if (!(stats.sum_sq_ref > 0)) return std::nullopt;
  const LossFactors factors = FactorsOf(evidence);
  const std::map<int, double>& alpha = factors.of_micro_batch;
  const double whole = stats.projection();
  // Any number is a multiple of another: parts have one factor if they scatter
  // by far less than it is away from 1.
  constexpr double kScatter = 0.1;
  const double tolerance = std::fmin(2 * std::fmax(evidence.leg->bound, 1e-6),
                                     kScatter * std::fabs(whole - 1));
  const bool agree = std::all_of(alpha.begin(), alpha.end(), [&](auto& part) {
    return std::fabs(part.second - whole) <= tolerance * std::fabs(whole);
  });
  std::string words;
  if (agree) {
    if (alpha.size() > 1) words = " in every micro-batch";
    const std::string name = FactorNameWords(evidence, whole, tolerance);
    // One number, of which no part confirms the factor, has to be a size.
    if (factors.cut_otherwise && name.empty()) return std::nullopt;
    words += name;
  } else {
    words = " (" + FactorWords(alpha, "in micro-batch") + ")";
    const std::string tokens =
        ExplainByTokens(alpha, TokenCounts(evidence), tolerance);
    // Another loss, not the same one times something.
    if (tokens.empty()) return std::nullopt;
    words += "; " + tokens;
  }
  return Diagnosis{
      BugClass::kLossNormalisation,
      fmt::format("{} is {:.6g} x the reference{}, while every activation is "
                  "within bounds",
                  evidence.judgement->id.arg, whole, words),
      whole};
}

}  // namespace

std::optional<Diagnosis> LossNormalisation(const Evidence& evidence) {
  // The loss is the first that is wrong only of what is known.
  if (evidence.leg == nullptr || !evidence.outputs_are_known) {
    return std::nullopt;
  }
  if (evidence.judgement->id.role == Role::kLoss) return OfTheLoss(evidence);
  // The gradient arriving at the model's own output, or what is blamed on the
  // loss: nothing but the loss made it.
  if (evidence.judgement->id.role != Role::kGradOutput ||
      !(evidence.judgement->id.fqn.empty() || evidence.culprit->fqn == "loss" ||
        evidence.culprit->fqn.empty())) {
    return std::nullopt;
  }
  const std::optional<ScaledParts> parts = FindScaledParts(evidence);
  if (!parts || parts->ranks_differ) return std::nullopt;
  const double tolerance =
      std::fmin(0.01, 2 * std::fmax(evidence.leg->bound, 1e-6));
  const std::string tokens =
      ExplainByTokens(parts->of_micro_batch, TokenCounts(evidence), tolerance);
  return Diagnosis{
      BugClass::kLossNormalisation,
      fmt::format(
          "the gradient that the loss sends into the model is {}, and "
          "every activation is within bounds{}{}{}",
          parts->agree ? fmt::format("{:.5g} x the reference's", parts->alpha) +
                             FactorNameWords(evidence, parts->alpha, tolerance)
                       : "the reference's times another constant " +
                             WhereFactorsDiffer(*parts),
          tokens.empty() ? "" : "; ", tokens,
          parts->sampled > 0 ? SampleWords(static_cast<size_t>(parts->sampled))
                             : ""),
      parts->alpha};
}

}  // namespace ttrace
