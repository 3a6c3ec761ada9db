// P: the ranks hold terms of a sum that was never made.
//
// Two kinds of evidence. Where the terms are there (copies that should be equal
// differ), their sum or mean is compared with the reference. Where the other
// terms are lost, the candidate is one term c of r = c + rest; terms of
// different data are uncorrelated, so <c,r>/<c,c> is 1 although <c,r>/<r,r> is
// well below 1, and this is believed only of a value that the topology says
// must be summed over some mesh dimension.

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/diagnose/diagnose.h"

namespace ttrace {
namespace {

std::string Join(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " x "));
}

std::string JoinRanks(const std::vector<int>& ranks) {
  return fmt::format("{}", fmt::join(ranks, ", "));
}

std::optional<Diagnosis> SumOfCopies(const Evidence& evidence) {
  const ReplicaComparison& replicas = evidence.judgement->replicas;
  if (evidence.leg == nullptr || !evidence.judgement->replicas_differ ||
      replicas.mesh_dims.empty() ||
      // Copies that differ by less than noise are no terms of a sum.
      !(replicas.worst_rel_err > evidence.leg->bound)) {
    return std::nullopt;
  }
  int copies = 1;
  for (const std::string& name : replicas.mesh_dims) {
    const int dim = evidence.candidate_mesh->Find(name);
    if (dim >= 0) {
      copies *= evidence.candidate_mesh->dims[static_cast<size_t>(dim)].size;
    }
  }
  if (copies < 2) return std::nullopt;
  for (const bool mean : {false, true}) {
    CompareOptions options = evidence.compare;
    options.sum_over = replicas.mesh_dims;
    options.extra_scale = mean ? 1.0 / copies : 1.0;
    const auto merged =
        CompareTensor(*evidence.reference, *evidence.candidate, options);
    if (!merged.ok()) continue;
    const double err = merged->total.rel_err();
    // Terms that cancel leave more noise than their sum: twice the bound.
    if (!(err <= 2 * evidence.leg->bound)) continue;
    Diagnosis out{"P", "", err};
    out.evidence = fmt::format(
        "copies on ranks {} differ by up to {:.2g} along {}, and their {} "
        "equals the reference (rel_err {:.1e}, bound {:.1e}): a sum over {} "
        "is missing",
        JoinRanks(replicas.differing_ranks), replicas.worst_rel_err,
        Join(replicas.mesh_dims), mean ? "mean" : "sum", err,
        evidence.leg->bound, Join(replicas.mesh_dims));
    return out;
  }
  return std::nullopt;
}

std::optional<Diagnosis> LostTerms(const Evidence& evidence) {
  if (evidence.leg == nullptr || evidence.candidate == nullptr) {
    return std::nullopt;
  }
  std::vector<std::string> over;
  for (const std::string& name :
       evidence.candidate->pieces.front()->reduced_over) {
    const int dim = evidence.candidate_mesh->Find(name);
    if (dim >= 0 &&
        evidence.candidate_mesh->dims[static_cast<size_t>(dim)].size > 1) {
      over.push_back(name);
    }
  }
  if (over.empty()) return std::nullopt;
  const ErrorStats& stats = evidence.leg->stats;
  const double alpha = stats.projection();
  const double beta = stats.back_projection();
  // Uncorrelated terms of n elements have |<c,rest>| ~ |c||rest| / sqrt(n);
  // real gradients are more alike than that. 0.25 separates a missing term
  // (beta 1) from half a value (beta 2) and from a foreign one (beta 0).
  if (!(alpha > 0.02) || !(alpha < 0.98) || !(std::fabs(beta - 1) < 0.25)) {
    return std::nullopt;
  }
  Diagnosis out{"P", "", alpha};
  out.evidence = fmt::format(
      "the reference is the candidate plus a remainder that is uncorrelated "
      "with it (<cand,ref>/<cand,cand> {:.3f}, <cand,ref>/<ref,ref> {:.3f}), "
      "in a value that has to be summed over {}: the terms of other {} ranks "
      "are missing",
      beta, alpha, Join(over), over.front());
  return out;
}

}  // namespace

std::optional<Diagnosis> MissingPartialSum(const Evidence& evidence) {
  if (evidence.reference == nullptr || evidence.candidate == nullptr) {
    return std::nullopt;
  }
  if (auto found = SumOfCopies(evidence)) return found;
  return LostTerms(evidence);
}

}  // namespace ttrace
