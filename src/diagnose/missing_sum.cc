// P: the ranks hold terms of a sum that was never made, or not made completely.
// W, where it was seen that it was made over other ranks.
//
// Three kinds of evidence, the strongest first. Where the terms were recorded
// (a gradient before its reduction), the ranks' own terms are fitted to what
// came out: the weights say whose term is in it. Where copies that should be
// equal differ, their sum over mesh dimensions is compared with the reference.
// Where the other terms are lost, the candidate is one term c of r = c + rest;
// terms of different data are uncorrelated, so <c,r>/<c,c> is 1 although
// <c,r>/<r,r> is well below 1, and this is believed only of a value that the
// topology says must be summed over some mesh dimension.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "src/base/rank_words.h"
#include "src/compare/sample.h"
#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/decomposition.h"
#include "src/diagnose/diagnose.h"
#include "src/diagnose/sum_of_copies.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

constexpr int64_t kSampled = 1
                             << 16;  // elements; any fault covers terms evenly
constexpr size_t kMostTerms = 64;

std::string Join(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " x "));
}

int SizeOf(const Evidence& evidence, const std::string& name) {
  const int dim = evidence.candidate_mesh->Find(name);
  return dim < 0 ? 1
                 : evidence.candidate_mesh->dims[static_cast<size_t>(dim)].size;
}

// Mesh dimensions along which a tensor's pieces are terms.
std::vector<std::string> PartialDims(const TensorPieces& pieces) {
  std::vector<std::string> out;
  const Record& first = pieces.pieces.front();
  const DeviceMesh& mesh = pieces.trace->mesh(first.grid());
  for (const auto& [name, placement] : first.placements()) {
    const int dim = mesh.Find(name);
    if (std::holds_alternative<Partial>(placement) && dim >= 0 &&
        mesh.dims[static_cast<size_t>(dim)].size > 1) {
      out.push_back(name);
    }
  }
  return out;
}

// Ranks that hold terms of the sum that `rank` should hold.
std::vector<int> TermRanks(const TensorPieces& local, int rank,
                           const std::vector<std::string>& partial) {
  const int grid = local.pieces.front().grid();
  const DeviceMesh& mesh = local.trace->mesh(grid);
  const Coordinate& mine = local.trace->coordinate(rank, grid);
  std::vector<int> out;
  for (const Record& record : local.pieces) {
    const Coordinate& theirs = local.trace->coordinate(record.rank(), grid);
    bool same = true;
    for (size_t d = 0; d < mesh.dims.size(); ++d) {
      const bool summed = std::find(partial.begin(), partial.end(),
                                    mesh.dims[d].name) != partial.end();
      same = same && (summed || mine[d] == theirs[d]);
    }
    if (same) out.push_back(record.rank());
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::optional<Diagnosis> OwnTerms(const Evidence& evidence) {
  TensorId id = evidence.judgement->id;
  if (id.role != Role::kGradReduced || evidence.leg->ranks.empty()) {
    return std::nullopt;
  }
  id.role = Role::kGradLocal;
  id.pass = Pass::kBackward;
  const TensorPieces* local = evidence.find_candidate(id);
  if (local == nullptr) return std::nullopt;
  const std::vector<std::string> partial = PartialDims(*local);
  const int rank = evidence.leg->ranks.front();
  const std::vector<int> ranks = TermRanks(*local, rank, partial);
  if (ranks.size() < 2 || ranks.size() > kMostTerms) return std::nullopt;

  const RankPieces reduced(*evidence.candidate, rank);
  if (reduced.empty()) return std::nullopt;
  const Shape shape = evidence.candidate->global_shape();
  if (local->global_shape() != shape) return std::nullopt;
  const auto boxes = PlanKept(shape, kSampled, {evidence.candidate, local});
  if (!boxes.ok()) return std::nullopt;
  const auto target = ReadKept(reduced.pieces(), *boxes);
  if (!target.ok()) return std::nullopt;
  std::vector<size_t> held;
  for (size_t i = 0; i < target->size(); ++i) {
    if (!std::isnan((*target)[i])) held.push_back(i);
  }
  const auto pick = [&](const std::vector<double>& values) {
    std::vector<double> out;
    out.reserve(held.size());
    for (const size_t i : held) out.push_back(values[i]);
    return out;
  };
  std::vector<std::vector<double>> terms;
  for (const int term : ranks) {
    const RankPieces own(*local, term);
    if (own.empty()) return std::nullopt;
    const auto values = ReadKept(own.pieces(), *boxes);
    if (!values.ok()) return std::nullopt;
    terms.push_back(pick(*values));
  }
  const double bound = evidence.leg->bound;
  const auto fit = Decompose(terms, pick(*target), bound);
  if (!fit || !(fit->residual <= 2 * bound) || !fit->whole(1e-3)) {
    return std::nullopt;
  }
  std::vector<int> in;
  std::vector<int> missing;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const double weight = std::round(fit->weights[i]);
    if (weight == 0) {
      missing.push_back(ranks[i]);
    } else if (weight == 1) {
      in.push_back(ranks[i]);
    } else {
      return std::nullopt;
    }
  }
  if (missing.empty() || in.empty()) return std::nullopt;
  return Diagnosis{
      BugClass::kMissingPartialSum,
      fmt::format("rank {}'s reduced gradient is the sum of the local "
                  "gradients of {} (fitted weights are whole within {:.1e}, "
                  "residual {:.1e}); the terms of {} are missing: the sum over "
                  "{} was not made completely{}",
                  rank, RankWords(in), fit->worst_uncertainty(), fit->residual,
                  RankWords(missing), Join(partial),
                  GivesValues(*evidence.candidate) && GivesValues(*local)
                      ? ""
                      : SampleWords(boxes->size())),
      static_cast<double>(missing.size())};
}

}  // namespace

std::optional<Diagnosis> LostTerms(const Evidence& evidence) {
  if (evidence.reference == nullptr || evidence.candidate == nullptr ||
      // The terms are somewhere: something else is wrong with the value.
      evidence.leg == nullptr || evidence.sums_were_made) {
    return std::nullopt;
  }
  std::vector<std::string> over;
  for (const std::string& name :
       evidence.candidate->pieces.front().reduced_over()) {
    if (SizeOf(evidence, name) > 1) over.push_back(name);
  }
  if (over.empty()) return std::nullopt;
  const ErrorStats& stats = evidence.leg->stats;
  const double alpha = stats.projection();
  const double beta = stats.back_projection();
  // Uncorrelated terms of n elements have |<c,rest>| ~ |c||rest| / sqrt(n);
  // real gradients are more alike than that. 0.25 separates a missing term
  // (beta 1) from half a value (beta 2) and from a foreign one (beta 0). Where
  // little is wrong beta is near 1 whatever it is: as much as is missing of the
  // reference may not be missing of the candidate, as where values changed
  // places (beta = alpha).
  if (!(alpha > 0.02) || !(alpha < 0.98) ||
      !(1 - alpha > 2 * evidence.leg->bound) ||
      !(std::fabs(beta - 1) < std::fmin(0.25, 0.5 * (1 - alpha)))) {
    return std::nullopt;
  }
  Diagnosis out{BugClass::kMissingPartialSum, "", alpha};
  out.evidence = fmt::format(
      "the reference is the candidate plus a remainder that is uncorrelated "
      "with it (<cand,ref>/<cand,cand> {:.3f}, <cand,ref>/<ref,ref> {:.3f}), "
      "in a value that has to be summed over {}: the terms of other {} ranks "
      "are missing",
      beta, alpha, Join(over), over.front());
  out.evidence += AttributeWords(evidence, "sequence_parallel");
  return out;
}

std::optional<Diagnosis> MissingPartialSum(const Evidence& evidence) {
  if (evidence.reference == nullptr || evidence.candidate == nullptr ||
      evidence.leg == nullptr) {
    return std::nullopt;
  }
  for (const auto rule : {SumOfCopies, OwnTerms}) {
    if (auto found = rule(evidence)) {
      found->evidence += AttributeWords(evidence, "sequence_parallel");
      return found;
    }
  }
  return std::nullopt;
}

std::optional<Diagnosis> WrongGroup(const Evidence& evidence) {
  if (evidence.wrong_group.empty()) return std::nullopt;
  return Diagnosis{BugClass::kWrongSlice, evidence.wrong_group, 0};
}

}  // namespace ttrace
