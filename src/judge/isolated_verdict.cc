#include "src/judge/isolated_verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "src/experiment/module_names.h"
#include "src/experiment/parameter_roles.h"

namespace ttrace {

NotIsolatedIndex::NotIsolatedIndex(const std::vector<NotIsolated>& notes) {
  for (const NotIsolated& note : notes) {
    by_module_[{note.leg, note.iteration, note.fqn}].push_back(&note);
  }
}

const NotIsolated* NotIsolatedIndex::Find(const Leg& leg, int iteration,
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

Reason NotIsolatedIndex::WhyNot(const Leg& leg, const TensorId& id) const {
  if (by_module_.empty()) return {};
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
      const bool parameter = IsParameterGradient(id.role);
      const std::string module = parameter ? ParentName(id.fqn) : id.fqn;
      note = Find(leg, id.iteration, module, Role::kGradOutput, nullptr);
      if (note == nullptr) {
        note = Find(leg, id.iteration, module, Role::kInput, nullptr);
      }
      break;
    }
  }
  if (note == nullptr) return {};
  Reason reason;
  reason.kind = ReasonKind::kNotReplaced;
  reason.tensor = {note->fqn, note->role, id.iteration, 0, note->arg, id.pass};
  reason.detail = note->reason;
  return reason;
}

std::optional<TensorJudgement::Isolated> ConcludeIsolated(
    const TensorId& id, const std::vector<LegJudgement>& legs,
    const std::vector<bool>& is_isolated, const NotIsolatedIndex& not_isolated,
    bool is_exact, bool copies_differ, const std::vector<int>& copy_ranks) {
  TensorJudgement::Isolated out;
  Reason why_not;
  bool any = false;
  bool any_replaced = false;
  bool equal = true;
  for (size_t i = 0; i < legs.size(); ++i) {
    if (!is_isolated[i]) continue;
    const LegJudgement& leg = legs[i];
    any = true;
    Reason why = not_isolated.WhyNot(leg.leg, id);
    if (!why.none()) {
      why_not = std::move(why);
      if (any_replaced) continue;
    } else if (!any_replaced) {
      // The first leg with everything replaced takes the say from others.
      any_replaced = true;
      equal = true;
      out.deciding_leg = -1;
      out.headroom = 0;
    }
    equal = equal && leg.stats.bitwise_equal();
    const bool bad = leg.nonfinite_by_fault();
    const double headroom =
        bad ? std::numeric_limits<double>::infinity() : leg.headroom;
    if ((leg.checkable || bad) &&
        (out.deciding_leg < 0 || headroom > out.headroom)) {
      out.deciding_leg = static_cast<int>(i);
      out.headroom = headroom;
    }
    if (out.deciding_leg < 0) out.reason = WhyNotCheckable(leg);
  }
  if (!any) return std::nullopt;
  out.replicas_differ = copies_differ;
  const bool is_data = id.role == Role::kInput && (is_exact || id.fqn.empty());
  out.replaced = any_replaced && !is_data;
  if (out.deciding_leg >= 0) {
    // What another leg's bound is too wide for, this one has judged.
    out.reason = {};
    out.verdict = ByHeadroom(out.headroom, equal);
  }
  if (!any_replaced) out.reason = why_not;
  if (copies_differ) {
    out.verdict = TensorVerdict::kDiverged;
    if (!(out.headroom > 1)) {
      out.headroom = std::numeric_limits<double>::infinity();
    }
  }
  if (out.verdict == TensorVerdict::kDiverged) {
    if (out.deciding_leg >= 0) {
      out.ranks = legs[static_cast<size_t>(out.deciding_leg)].ranks;
    }
    if (out.ranks.empty() && copies_differ) out.ranks = copy_ranks;
  }
  return out;
}

bool ContradictedByRun(const TensorJudgement& judgement) {
  // What is left of the difference if the run is anywhere within its bound.
  constexpr double kBothSides = 2;
  if (!judgement.out_isolated() || !judgement.judged_isolated() ||
      judgement.isolated->replicas_differ ||
      judgement.isolated->deciding_leg < 0 || judgement.nonfinite) {
    return false;
  }
  const LegJudgement* run = judgement.deciding();
  const LegJudgement& alone =
      judgement.legs[static_cast<size_t>(judgement.isolated->deciding_leg)];
  if (run == nullptr || !run->checkable || run->headroom > 1 ||
      !std::isfinite(alone.err) || alone.nonfinite_by_fault()) {
    return false;
  }
  if (alone.err > kBothSides * run->bound) return true;
  // A bound of the whole may say little where few legs show noise, and that of
  // the statistic by which the leg is off much.
  const Test* off = alone.deciding();
  const Test* same = off == nullptr ? nullptr : run->Find(off->statistic);
  return same != nullptr && off->ranks.empty() &&
         off->value > kBothSides * same->bound;
}

}  // namespace ttrace
