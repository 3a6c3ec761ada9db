// P: the ranks hold terms of a sum that was never made, or not made completely.
// W, where it was seen that it was made over other ranks.
//
// Three kinds of view, the strongest first. Where the terms were recorded
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
#include "src/diagnose/constants.h"
#include "src/diagnose/decomposition.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/rules/sum_of_copies.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

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

// What a rank holds of a reduced gradient, and the terms whose sum that should
// be, at the places where it holds any.
struct ReducedTerms {
  std::vector<double> held;
  std::vector<std::vector<double>> terms;  // one a rank
  size_t looked_at = 0;
};

std::optional<ReducedTerms> ReadTerms(const ValueView& view,
                                      const TensorPieces& local, int rank,
                                      const std::vector<int>& ranks) {
  const RankPieces reduced(view.candidate(), rank);
  const Shape shape = view.candidate().global_shape();
  if (reduced.empty() || local.global_shape() != shape) return std::nullopt;
  const auto boxes =
      PlanKept(shape, kTermElements, {&view.candidate(), &local});
  if (!boxes.ok()) return std::nullopt;
  const auto target = ReadKept(reduced.pieces(), *boxes);
  if (!target.ok()) return std::nullopt;
  const auto pick = [&](const std::vector<double>& values) {
    std::vector<double> out;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isnan((*target)[i])) out.push_back(values[i]);
    }
    return out;
  };
  ReducedTerms out;
  out.held = pick(*target);
  out.looked_at = boxes->size();
  for (const int term : ranks) {
    const RankPieces own(local, term);
    if (own.empty()) return std::nullopt;
    const auto values = ReadKept(own.pieces(), *boxes);
    if (!values.ok()) return std::nullopt;
    out.terms.push_back(pick(*values));
  }
  return out;
}

std::optional<Diagnosis> OwnTerms(const ValueView& view) {
  TensorId id = view.id();
  if (id.role != Role::kGradReduced || view.leg().ranks.empty()) {
    return std::nullopt;
  }
  id.role = Role::kGradLocal;
  id.pass = Pass::kBackward;
  const TensorPieces* local = view.evidence().find_candidate(id);
  if (local == nullptr) return std::nullopt;
  const std::vector<std::string> partial = PartialDims(*local);
  const int rank = view.leg().ranks.front();
  const std::vector<int> ranks = TermRanks(*local, rank, partial);
  if (ranks.size() < 2 || ranks.size() > kMostTerms) return std::nullopt;
  const auto read = ReadTerms(view, *local, rank, ranks);
  if (!read) return std::nullopt;
  const double bound = view.bound();
  const auto fit = Decompose(read->terms, read->held, bound);
  if (!fit || !(fit->residual <= 2 * bound) || !fit->whole()) {
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
                  RankWords(missing), DimWords(partial),
                  GivesValues(view.candidate()) && GivesValues(*local)
                      ? ""
                      : SampleWords(read->looked_at)),
      static_cast<double>(missing.size())};
}

}  // namespace

std::optional<Diagnosis> LostTerms(const ValueView& view) {
  // The terms are somewhere: something else is wrong with the value.
  if (view.evidence().sums_were_made) return std::nullopt;
  // They were cleared, whoever should have added them.
  if (view.evidence().cleared != nullptr) return std::nullopt;
  std::vector<std::string> over;
  for (const std::string& name :
       view.candidate().pieces.front().reduced_over()) {
    if (view.evidence().SizeOf(name) > 1) over.push_back(name);
  }
  if (over.empty()) return std::nullopt;
  const ErrorStats& stats = view.leg().stats;
  const double alpha = stats.projection();
  const double beta = stats.back_projection();
  // Uncorrelated terms of n elements have |<c,rest>| ~ |c||rest| / sqrt(n);
  // real gradients are more alike than that. Where little is wrong beta is near
  // 1 whatever it is: as much as is missing of the reference may not be missing
  // of the candidate, as where values changed places (beta = alpha).
  if (!(alpha > kLeastOfTerm) || !(alpha < 1 - kLeastOfTerm) ||
      !(1 - alpha > 2 * view.bound()) ||
      !(std::fabs(beta - 1) < std::fmin(kTermWithin, 0.5 * (1 - alpha)))) {
    return std::nullopt;
  }
  Diagnosis out{BugClass::kMissingPartialSum, "", alpha};
  out.evidence = fmt::format(
      "the reference is the candidate plus a remainder that is uncorrelated "
      "with it (<cand,ref>/<cand,cand> {:.3f}, <cand,ref>/<ref,ref> {:.3f}), "
      "in a value that has to be summed over {}: the terms of other {} ranks "
      "are missing",
      beta, alpha, DimWords(over), over.front());
  out.evidence += AttributeWords(view.evidence(), "sequence_parallel");
  return out;
}

std::optional<Diagnosis> MissingPartialSum(const ValueView& view) {
  for (const auto rule : {SumOfCopies, OwnTerms}) {
    if (auto found = rule(view)) {
      found->evidence += AttributeWords(view.evidence(), "sequence_parallel");
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
