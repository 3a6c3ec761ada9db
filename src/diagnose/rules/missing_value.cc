// M: zeros where the reference has values, everywhere or in a part, or no
// gradient at all.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>
#include <string>

#include "src/base/rank_words.h"
#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

// Exactly zero: the error is then bit for bit minus the reference.
bool AllZero(const ErrorStats& stats) {
  return stats.sum_sq_ref > 0 && stats.sum_err_ref == -stats.sum_sq_ref &&
         stats.sum_sq_err == stats.sum_sq_ref;
}

std::optional<Diagnosis> ZeroOnSomeRanks(const ValueView& view) {
  std::set<int> ranks;
  int64_t zero = 0;
  for (const InstanceStats& part : view.evidence().instances) {
    if (AllZero(part.stats)) {
      zero += part.stats.count;
      ranks.insert(part.ranks.begin(), part.ranks.end());
    } else if (part.stats.rel_err() > kSlack * view.bound()) {
      return std::nullopt;
    }
  }
  if (ranks.empty()) return std::nullopt;
  return Diagnosis{
      BugClass::kMissingOrZero,
      fmt::format("{} elements, the parts of {}, are all zero, and the other "
                  "parts are right",
                  zero, RankWords({ranks.begin(), ranks.end()})),
      static_cast<double>(zero)};
}

std::optional<Diagnosis> ZeroElements(const ValueView& view) {
  const std::vector<size_t>& wrong = view.wrong();
  if (wrong.size() < kFewestZeros) return std::nullopt;
  const SampledPair* pair = view.sample();
  for (const size_t i : wrong) {
    if (pair->candidate[i] != 0) return std::nullopt;
  }
  return Diagnosis{
      BugClass::kMissingOrZero,
      fmt::format("all {} wrong elements of {} looked at are exactly zero, "
                  "first at [{}]{}",
                  wrong.size(), pair->reference.size(),
                  fmt::join(PlaceInSample(pair->boxes, wrong.front()), ", "),
                  SampleWords(*pair)),
      static_cast<double>(wrong.size())};
}

// What `gradient` is the gradient of, as a forward pass records it.
TensorId Differentiated(const TensorId& gradient) {
  TensorId id = gradient;
  id.pass = Pass::kForward;
  if (gradient.role == Role::kGradInput) {
    id.role = Role::kInput;
  } else if (gradient.role == Role::kGradOutput) {
    id.role = Role::kOutput;
  } else {
    id.role = Role::kParam;
  }
  return id;
}

// The candidate has the value, and no gradient of it. Without the value it has
// another structure, or other names, and nothing is known of its gradients.
bool HasNoGradient(const Evidence& evidence, const TensorId& gradient) {
  if (evidence.find_candidate(gradient) != nullptr) return false;
  TensorId value = Differentiated(gradient);
  // Parameters are recorded where a run starts.
  const int first = value.role == Role::kParam ? 0 : value.iteration;
  for (; value.iteration >= first; --value.iteration) {
    if (evidence.find_candidate(value) != nullptr) return true;
  }
  return false;
}

}  // namespace

std::optional<Diagnosis> AbsentGradient(const Evidence& evidence) {
  // A gradient explains nothing of a forward pass.
  if (evidence.culprit->direction == Direction::kForward ||
      evidence.culprit->fqn.empty()) {
    return std::nullopt;
  }
  std::set<std::string> absent;
  bool all_reduced = true;  // what is absent: what backward makes is there
  for (const TensorJudgement* t : evidence.unmatched) {
    const bool gradient =
        t->id.role == Role::kGradInput || t->id.role == Role::kGradOutput ||
        t->id.role == Role::kGradLocal || t->id.role == Role::kGradReduced;
    const bool own = t->id.fqn == evidence.culprit->fqn ||
                     t->id.fqn.starts_with(evidence.culprit->fqn + ".");
    if (gradient && own && HasNoGradient(evidence, t->id)) {
      absent.insert(t->id.fqn);
      all_reduced &= t->id.role == Role::kGradReduced;
    }
  }
  if (absent.empty()) return std::nullopt;
  return Diagnosis{
      BugClass::kMissingOrZero,
      fmt::format("the candidate has no {}gradient of {}{}, which "
                  "the reference has",
                  all_reduced ? "reduced " : "", *absent.begin(),
                  absent.size() == 1 ? ""
                                     : fmt::format(" and {} more below it",
                                                   absent.size() - 1)),
      static_cast<double>(absent.size())};
}

std::optional<Diagnosis> MissingValue(const ValueView& view) {
  const ErrorStats& stats = view.leg().stats;
  if (AllZero(stats)) {
    return Diagnosis{
        BugClass::kMissingOrZero,
        fmt::format(
            "all {} elements are zero; the reference has a norm of {:.2e}",
            stats.count, std::sqrt(stats.sum_sq_ref)),
        0};
  }
  if (auto found = ZeroOnSomeRanks(view)) return found;
  return ZeroElements(view);
}

}  // namespace ttrace
