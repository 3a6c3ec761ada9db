// Rules whose evidence is a count or a bit: N, M, R, Z, G, L.

#include <fmt/format.h>

#include <cmath>

#include "src/diagnose/diagnose.h"

namespace ttrace {

std::optional<Diagnosis> NonFinite(const Evidence& evidence) {
  if (!evidence.judgement->nonfinite) return std::nullopt;
  int64_t bad = 0;
  int64_t reference = 0;
  for (const LegJudgement& leg : evidence.judgement->legs) {
    if (leg.stats.nonfinite_cand > bad) {
      bad = leg.stats.nonfinite_cand;
      reference = leg.stats.nonfinite_ref;
    }
  }
  return Diagnosis{
      "N",
      fmt::format("{} NaN or Inf (reference: {}); nothing before it has any",
                  bad, reference),
      static_cast<double>(bad)};
}

std::optional<Diagnosis> MissingValue(const Evidence& evidence) {
  if (evidence.leg == nullptr) return std::nullopt;
  const ErrorStats& stats = evidence.leg->stats;
  // Exactly zero: the error is then bit for bit minus the reference.
  if (stats.sum_sq_ref <= 0 || stats.sum_err_ref != -stats.sum_sq_ref ||
      stats.sum_sq_err != stats.sum_sq_ref) {
    return std::nullopt;
  }
  return Diagnosis{
      "M",
      fmt::format(
          "all {} elements are zero; the reference has a norm of {:.2e}",
          stats.count, std::sqrt(stats.sum_sq_ref)),
      0};
}

std::optional<Diagnosis> ReplicasDiffer(const Evidence& evidence) {
  if (!evidence.judgement->replicas_differ) return std::nullopt;
  const ReplicaComparison& replicas = evidence.judgement->replicas;
  return Diagnosis{
      "R",
      fmt::format("{} of {} copies differ from the first, by up to {:.2g} "
                  "(ranks {}, along {}); in a correct run they are equal bit "
                  "for bit",
                  replicas.differing, replicas.copies, replicas.worst_rel_err,
                  fmt::join(replicas.differing_ranks, ", "),
                  fmt::join(replicas.mesh_dims, ", ")),
      replicas.worst_rel_err};
}

std::optional<Diagnosis> OtherInputs(const Evidence& evidence) {
  if (evidence.culprit->stage != Stage::kInput ||
      evidence.judgement->replicas_differ) {
    return std::nullopt;
  }
  const std::string& reason = evidence.judgement->reason;
  if (reason.empty()) return std::nullopt;
  return Diagnosis{"Z", "before any computation " + reason,
                   evidence.leg == nullptr
                       ? 0
                       : static_cast<double>(evidence.leg->stats.mismatched)};
}

std::optional<Diagnosis> WrongGradNorm(const Evidence& evidence) {
  if (evidence.judgement->id.role != Role::kGradNorm) return std::nullopt;
  return Diagnosis{"G", evidence.judgement->reason,
                   evidence.leg == nullptr ? 0 : evidence.leg->err};
}

std::optional<Diagnosis> LossNormalisation(const Evidence& evidence) {
  if (evidence.judgement->id.role != Role::kLoss || evidence.leg == nullptr) {
    return std::nullopt;
  }
  const ErrorStats& stats = evidence.leg->stats;
  if (stats.sum_sq_ref == 0) return std::nullopt;
  return Diagnosis{
      "L",
      fmt::format("{} is {:.6g} x the reference while every activation is "
                  "within bounds",
                  evidence.judgement->id.arg, stats.projection()),
      stats.projection()};
}

}  // namespace ttrace
