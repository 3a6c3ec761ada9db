#include "src/judge/isolated_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/experiment/module_names.h"
#include "src/judge/constants.h"

namespace ttrace {

bool InIsolation(Role role) {
  switch (role) {
    case Role::kInput:
    case Role::kOutput:
    case Role::kLoss:
    case Role::kGradOutput:
    case Role::kGradInput:
    case Role::kGradLocal:
    case Role::kGradReduced:
      return true;
    default:
      return false;
  }
}

NotIsolatedIndex::NotIsolatedIndex(const std::vector<NotIsolated>& notes) {
  for (const NotIsolated& note : notes) {
    by_module_[{note.leg, note.iteration, note.fqn}].push_back(&note);
  }
}

const NotIsolated* NotIsolatedIndex::Find(const std::string& leg, int iteration,
                                          const std::string& fqn, Role role,
                                          const std::string* arg) const {
  const auto found = by_module_.find({leg, iteration, fqn});
  if (found == by_module_.end()) return nullptr;
  const auto note = std::find_if(
      found->second.begin(), found->second.end(), [&](const NotIsolated* n) {
        return n->role == role && (arg == nullptr || n->arg == *arg);
      });
  return note == found->second.end() ? nullptr : *note;
}

std::string NotIsolatedIndex::WhyNot(const std::string& leg,
                                     const TensorId& id) const {
  if (by_module_.empty()) return "";
  const NotIsolated* note = nullptr;
  switch (id.role) {
    case Role::kInput:
    case Role::kGradOutput:
      note = Find(leg, id.iteration, id.fqn, id.role, &id.arg);
      break;
    case Role::kOutput:
      note = Find(leg, id.iteration, id.fqn, Role::kInput, nullptr);
      break;
    case Role::kLoss:
      note = Find(leg, id.iteration, "", Role::kInput, nullptr);
      break;
    default: {
      // A backward pass works on the forward values, too.
      const bool parameter =
          id.role == Role::kGradLocal || id.role == Role::kGradReduced;
      const std::string module = parameter ? ParentName(id.fqn) : id.fqn;
      note = Find(leg, id.iteration, module, Role::kGradOutput, nullptr);
      if (note == nullptr) {
        note = Find(leg, id.iteration, module, Role::kInput, nullptr);
      }
      break;
    }
  }
  if (note == nullptr) return "";
  return fmt::format("{} {} of {} was not replaced: {}", ToString(note->role),
                     note->arg, note->fqn.empty() ? "the model" : note->fqn,
                     note->reason);
}

void ConcludeIsolated(const std::vector<std::string>& isolated_legs,
                      const NotIsolatedIndex& not_isolated, bool is_exact,
                      TensorJudgement* out) {
  TensorJudgement::Isolated alone;
  std::string why_not;
  bool any = false;
  bool any_replaced = false;
  bool equal = true;
  bool nonfinite = false;
  for (size_t i = 0; i < out->legs.size(); ++i) {
    const LegJudgement& leg = out->legs[i];
    if (std::find(isolated_legs.begin(), isolated_legs.end(), leg.leg) ==
        isolated_legs.end()) {
      continue;
    }
    any = true;
    const std::string why = not_isolated.WhyNot(leg.leg, out->id);
    if (!why.empty()) {
      why_not = why;
      if (any_replaced) continue;
    } else if (!any_replaced) {
      // The first leg with everything replaced takes the say from others.
      any_replaced = true;
      equal = true;
      nonfinite = false;
      alone.deciding_leg = -1;
      alone.headroom = 0;
    }
    equal = equal && leg.stats.bitwise_equal();
    const bool bad = leg.stats.nonfinite_differ > 0;
    const double headroom =
        bad ? std::numeric_limits<double>::infinity() : leg.headroom;
    nonfinite = nonfinite || bad;
    if ((leg.checkable || bad) &&
        (alone.deciding_leg < 0 || headroom > alone.headroom)) {
      alone.deciding_leg = static_cast<int>(i);
      alone.headroom = headroom;
    }
    if (!leg.checkable && alone.deciding_leg < 0) alone.reason = leg.provenance;
  }
  if (!any) return;
  alone.replicas_differ = out->isolated && out->isolated->replicas_differ;
  const bool is_data =
      out->id.role == Role::kInput && (is_exact || out->id.fqn.empty());
  alone.replaced = any_replaced && !is_data;
  if (!any_replaced) alone.reason = why_not;
  if (alone.deciding_leg >= 0) {
    alone.verdict = equal ? TensorVerdict::kBitwiseEqual
                    : alone.headroom > 1 || nonfinite ? TensorVerdict::kDiverged
                    : alone.headroom > kSuspectHeadroom
                        ? TensorVerdict::kSuspect
                        : TensorVerdict::kWithin;
  }
  if (alone.replicas_differ) {
    alone.verdict = TensorVerdict::kDiverged;
    if (!(alone.headroom > 1)) {
      alone.headroom = std::numeric_limits<double>::infinity();
    }
  }
  if (alone.verdict == TensorVerdict::kDiverged) {
    if (alone.deciding_leg >= 0) {
      alone.ranks = out->legs[static_cast<size_t>(alone.deciding_leg)].ranks;
    }
    if (alone.ranks.empty() && alone.replicas_differ) {
      alone.ranks = out->replicas.differing_ranks;
    }
  }
  out->isolated = std::move(alone);
}

}  // namespace ttrace
