// S and W by whole tensors: the candidate is not this value of the reference
// but another one, of an earlier iteration (S), of another layer or place (W),
// or what went into the module (Z: the module did nothing).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/rank_words.h"
#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/vectors.h"
#include "src/diagnose/words.h"
#include "src/judge/reason_words.h"

namespace ttrace {
namespace {

double RelativeError(const std::vector<double>& a,
                     const std::vector<double>& b) {
  const double norm = SquaredNorm(b);
  return norm > 0 ? std::sqrt(SquaredDistance(a, b) / norm) : HUGE_VAL;
}

bool IsActivation(Role role) {
  return role == Role::kInput || role == Role::kOutput;
}

bool IsActivationGradient(Role role) {
  return role == Role::kGradInput || role == Role::kGradOutput;
}

bool SameKind(Role a, Role b) {
  return a == b || (IsActivation(a) && IsActivation(b)) ||
         (IsActivationGradient(a) && IsActivationGradient(b));
}

// The whole candidate equals `other`, and is at least 4 times closer to it than
// to its own reference.
bool EqualsWhole(const ValueView& view, const TensorPieces& other,
                 double* error) {
  const auto compared =
      CompareTensor(other, view.candidate(), view.evidence().compare);
  if (!compared.ok() || compared->total.nonfinite_differ > 0) return false;
  *error = compared->total.rel_err();
  return *error <= view.bound() && kSeparation * *error < view.leg().err;
}

}  // namespace

std::optional<Diagnosis> OtherIteration(const ValueView& view) {
  if (view.leg().stats.count < kFewestOfPart) return std::nullopt;
  TensorId id = view.id();
  for (int back = 1; back <= 2 && id.iteration > 0; ++back) {
    --id.iteration;
    const TensorPieces* earlier = view.evidence().find_reference(id);
    double error = 0;
    if (earlier == nullptr ||
        earlier->global_shape() != view.candidate().global_shape() ||
        !EqualsWhole(view, *earlier, &error)) {
      continue;
    }
    return Diagnosis{
        BugClass::kStaleValue,
        fmt::format("it equals the reference's value of iteration {} (rel_err "
                    "{:.1e}, bound {:.1e}; from its own it is {:.2g} away)",
                    id.iteration, error, view.bound(), view.leg().err),
        static_cast<double>(back)};
  }
  return std::nullopt;
}

std::optional<Diagnosis> OtherPlace(const ValueView& view) {
  const TensorId& own = view.id();
  if (view.leg().stats.count < kFewestOfTensor ||
      !(IsActivation(own.role) || IsActivationGradient(own.role) ||
        own.role == Role::kGradReduced || own.role == Role::kGradLocal)) {
    return std::nullopt;
  }
  const Shape shape = view.reference().global_shape();
  const auto boxes =
      PlanKept(shape, kGlance, {&view.reference(), &view.candidate()});
  if (!boxes.ok()) return std::nullopt;
  const auto candidate =
      ReadKept(view.candidate(), *boxes, view.evidence().compare);
  if (!candidate.ok()) return std::nullopt;
  // A part may be further out than the whole (slices.h); the whole is then
  // compared exactly.
  const double glance = std::fmin(0.5, kSlack * view.bound());
  // One value has several names (an output is the next module's input): the
  // module's own input or arriving gradient says most, then the same role
  // elsewhere.
  const auto rank_of = [&](const TensorId& id) {
    const bool through =
        id.fqn == own.fqn &&
        (own.role == Role::kOutput
             ? id.role == Role::kInput
             : own.role == Role::kGradInput && id.role == Role::kGradOutput);
    return through ? 0 : id.role == own.role && id.arg == own.arg ? 1 : 2;
  };
  std::optional<TensorId> found;
  int found_rank = 3;
  double found_error = 0;
  int64_t looked_at = 0;
  const auto look = [&](const TensorId& id, const TensorPieces& other) {
    const int rank = rank_of(id);
    if ((id.fqn == own.fqn && id.role == own.role) || rank >= found_rank ||
        id.iteration != own.iteration || !SameKind(id.role, own.role) ||
        other.global_shape() != shape || ++looked_at > kMostTensors) {
      return;
    }
    const auto values = ReadKept(other, *boxes);
    double error = 0;
    if (!values.ok() || !(RelativeError(*candidate, *values) <= glance) ||
        !EqualsWhole(view, other, &error)) {
      return;
    }
    found = id;
    found_rank = rank;
    found_error = error;
  };
  view.evidence().visit_reference(look);
  if (!found) return std::nullopt;
  const bool did_nothing = found_rank == 0;
  return Diagnosis{
      did_nothing ? BugClass::kOtherModelOrInputs : BugClass::kWrongSlice,
      fmt::format(
          "it equals the reference's {} {} of {} (rel_err {:.1e}, bound "
          "{:.1e}; from its own it is {:.2g} away){}",
          ToString(found->role), found->arg, found->fqn, found_error,
          view.bound(), view.leg().err,
          did_nothing ? ": the module did nothing" : ""),
      found_error};
}

namespace {

// The state that is the model's own parameter.
constexpr std::string_view kUpdated = "updated";

// The parameter as the step found it: recorded as such, or after the last step,
// or at the beginning.
const TensorPieces* BeforeTheStep(const Evidence& evidence) {
  const TensorId& id = evidence.judgement->id;
  const TensorPieces* old = nullptr;
  const auto look = [&](Role role, std::string_view arg, Pass pass, int from,
                        int to) {
    TensorId before = id;
    before.role = role;
    before.arg = arg;
    before.pass = pass;
    for (before.iteration = from; before.iteration >= to && old == nullptr;
         --before.iteration) {
      old = evidence.find_candidate(before);
    }
  };
  look(Role::kOptimState, kUpdated, Pass::kForward, id.iteration, id.iteration);
  look(Role::kParamUpdated, "", Pass::kOptimizer, id.iteration - 1, 0);
  look(Role::kParam, "", Pass::kForward, id.iteration, 0);
  return old;
}

}  // namespace

std::optional<Diagnosis> UnchangedParameter(const Evidence& evidence) {
  const TensorId& id = evidence.judgement->id;
  if (evidence.judgement->not_updated()) {
    return Diagnosis{BugClass::kStaleValue,
                     ReasonWords(evidence.judgement->reason), 0};
  }
  const bool of_weights = id.role == Role::kParamUpdated ||
                          (id.role == Role::kOptimState && id.arg == kUpdated);
  if (!of_weights || evidence.candidate == nullptr) return std::nullopt;
  const TensorPieces* old = BeforeTheStep(evidence);
  if (old == nullptr) return std::nullopt;
  const auto compared = CompareTensor(*old, *evidence.candidate);
  if (!compared.ok()) return std::nullopt;
  std::vector<int> stale;
  bool any_changed = false;
  for (const InstanceStats& part : compared->instances) {
    if (part.stats.bitwise_equal()) {
      stale.insert(stale.end(), part.ranks.begin(), part.ranks.end());
    } else {
      any_changed = true;
    }
  }
  // Equal everywhere may be right: a frozen parameter, a step of zero.
  if (stale.empty() || !any_changed) return std::nullopt;
  std::sort(stale.begin(), stale.end());
  return Diagnosis{BugClass::kStaleValue,
                   fmt::format("on {} it is bit for bit what it was before the "
                               "step, while other copies or parts have changed",
                               RankWords(stale)),
                   static_cast<double>(stale.size())};
}

}  // namespace ttrace
