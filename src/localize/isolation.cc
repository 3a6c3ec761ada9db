#include "src/localize/isolation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "src/experiment/escaped_parameters.h"
#include "src/experiment/module_names.h"
#include "src/judge/one_factor.h"
#include "src/localize/blame.h"
#include "src/localize/carried_buffers.h"
#include "src/localize/module_tree.h"

namespace ttrace {
namespace {

constexpr std::initializer_list<Role> kModuleRoles = {
    Role::kInput, Role::kOutput, Role::kGradOutput, Role::kGradInput};

// Buffers are state and in no isolated leg: their end-to-end verdict counts.
// Parameters are what the run brought, and were replaced (leg_plan.h).
bool OutIsolated(const TensorJudgement& t) {
  return t.id.role == Role::kBuffer ? t.diverged() : t.out_isolated();
}

bool IsRecompute(const TensorJudgement& t) {
  return t.id.pass == Pass::kRecompute;
}

// The name of a module seen from one that contains it.
std::string Within(const std::string& fqn, const std::string& container) {
  return container.empty() ? fqn : fqn.substr(container.size() + 1);
}

class IsolationJudge {
 public:
  IsolationJudge(const std::vector<const TensorJudgement*>& tensors,
                 const EscapedParameters& escaped_parameters,
                 const FusedModules& fused)
      : tree_(tensors, fused, OutIsolated), escaped_(escaped_parameters) {
    for (const TensorJudgement* t : tensors) {
      if (t->id.fqn.empty()) continue;
      if (t->id.role == Role::kOutput || t->id.role == Role::kGradInput ||
          t->id.role == Role::kInput) {
        children_[tree_.Container(t->id.fqn)].push_back(t);
      }
    }
  }

  // Nothing if something else explains that `t` is out of bounds.
  std::optional<Blame> BlameFor(const TensorJudgement& t) const {
    // What could not be isolated may be out because of others.
    if (!t.judged_isolated() || RecomputedWrongFromTheStart(t)) {
      return std::nullopt;
    }
    switch (t.id.role) {
      case Role::kInput:
        return ForInput(t);
      case Role::kOutput:
        return ForOutput(t);
      case Role::kLoss:
        return ForLoss();
      case Role::kGradOutput:
        return ForGradOutput(t);
      case Role::kGradInput:
        return ForGradInput(t);
      case Role::kGradLocal:
        return ForGradLocal(t);
      case Role::kGradReduced:
        return ForGradReduced(t);
      default:
        return std::nullopt;
    }
  }

 private:
  // The forward pass had the same value wrong: one cause.
  bool RecomputedWrongFromTheStart(const TensorJudgement& t) const {
    if (!IsRecompute(t)) return false;
    const auto& same = tree_.Of(t.id.fqn, t.id.role);
    return std::any_of(same.begin(), same.end(), [&](const auto* other) {
      return other->out_isolated() && !IsRecompute(*other) &&
             other->id.call == t.id.call && other->id.arg == t.id.arg;
    });
  }

  // The module itself works on something that was not replaced and is out: a
  // tensor that the reference has not, or data.
  bool ReceivesErrors(const std::string& fqn, Role edge) const {
    const auto& edges = tree_.Of(fqn, edge);
    return std::any_of(edges.begin(), edges.end(), [](const auto* t) {
      return t->out_isolated() && !t->isolated->replaced;
    });
  }

  // As ReceivesErrors, or what was not replaced is off by more than `t` may be:
  // `t` may be what became of it.
  bool MayHandOn(const std::string& fqn, Role edge,
                 const TensorJudgement& t) const {
    if (ReceivesErrors(fqn, edge)) return true;
    const LegJudgement* own = t.convicting();
    if (own == nullptr) return false;
    const auto& edges = tree_.Of(fqn, edge);
    return std::any_of(edges.begin(), edges.end(), [&](const auto* e) {
      return e->isolated && !e->isolated->replaced &&
             std::any_of(e->legs.begin(), e->legs.end(), [&](const auto& leg) {
               return leg.leg == own->leg && leg.err > own->bound;
             });
    });
  }

  // Whether anything was seen of what a container is given there: else nobody
  // knows that the reference's values were put in its place. What the model
  // itself is given is data.
  bool IsSeen(const std::string& container, Role edge) const {
    if (container.empty()) return true;
    const auto& edges = tree_.Of(container, edge);
    return std::any_of(edges.begin(), edges.end(),
                       [](const auto* e) { return e->isolated.has_value(); });
  }

  // Buffers, or inputs that were not replaced, are out.
  bool WorksOnErrors(const std::string& fqn) const {
    return tree_.AnyDivergedBelow(fqn, {Role::kBuffer}) ||
           ReceivesErrors(fqn, Role::kInput);
  }

  // A tensor of `role` of a module directly in `container`, out of bounds, in
  // the same pass and earlier than `t`.
  bool OutBefore(const TensorJudgement& t, const std::string& container,
                 Role role) const {
    const auto found = children_.find(container);
    if (found == children_.end()) return false;
    return std::any_of(
        found->second.begin(), found->second.end(), [&](const auto* child) {
          return child->id.role == role && child->out_isolated() &&
                 child->id.pass == t.id.pass && child->order < t.order;
        });
  }

  // The module whose code hands an arriving gradient over. What a container
  // returns may be the very tensor that its last module made. That module then
  // sees the gradient first, and it comes from outside of the container.
  std::string GradientFrom(const TensorJudgement& t) const {
    std::string container = tree_.Container(t.id.fqn);
    while (!container.empty()) {
      const auto& arriving = tree_.Of(container, Role::kGradOutput);
      if (arriving.empty() ||
          std::any_of(arriving.begin(), arriving.end(),
                      [&](const auto* own) { return own->order < t.order; })) {
        break;
      }
      container = tree_.Container(container);
    }
    return container;
  }

  // Anything that `container` computes forward by its own code or by a module
  // directly in it.
  bool ForwardOutIn(const std::string& container) const {
    if (tree_.AnyDiverged(container, {Role::kOutput}, false)) return true;
    const auto found = children_.find(container);
    if (found == children_.end()) return false;
    return std::any_of(
        found->second.begin(), found->second.end(), [](const auto* child) {
          return child->id.role != Role::kGradInput && child->out_isolated();
        });
  }

  // The two ends of the code that hands `t` over. What was last computed
  // before it in `container` is one; if nothing was, the container's own
  // input (or arriving gradient) is.
  std::string Between(const TensorJudgement& t, const std::string& container,
                      Role before) const {
    const TensorJudgement* last = nullptr;
    std::set<std::string> unjudged;
    const auto found = children_.find(container);
    if (found != children_.end()) {
      for (const TensorJudgement* child : found->second) {
        if (child->id.role != before || child->id.pass != t.id.pass ||
            child->order >= t.order || child->id.fqn == t.id.fqn) {
          continue;
        }
        if (last == nullptr || child->order > last->order) last = child;
        if (!child->judged_isolated()) {
          unjudged.insert(Within(child->id.fqn, container));
        }
      }
    }
    const bool forward = before == Role::kOutput;
    std::string from =
        last == nullptr
            ? fmt::format("the {} {}", forward ? "input of" : "gradient at",
                          NameOrModel(container))
            : fmt::format("{} {} {}", Within(last->id.fqn, container),
                          forward ? "output" : "grad_input", last->id.arg);
    std::string text = fmt::format(
        "between {} and {} {} {}, in {}{}: what the modules before it in there "
        "compute from the reference's values is within bounds, what arrives "
        "is not",
        from, Within(t.id.fqn, container), forward ? "input" : "grad_output",
        t.id.arg, NameOrModel(container), IsRecompute(t) ? ", recomputed" : "");
    if (!unjudged.empty()) {
      text += fmt::format("; not judged in isolation: {}",
                          fmt::join(unjudged, ", "));
    }
    return text;
  }

  static Direction DirectionOf(const TensorJudgement& t) {
    return IsRecompute(t) ? Direction::kBackward : Direction::kForward;
  }

  std::optional<Blame> ForInput(const TensorJudgement& t) const {
    if (t.id.fqn.empty()) {
      return Blame{"", DirectionOf(t), Stage::kInput,
                   fmt::format("the model's own input {} differs", t.id.arg)};
    }
    const std::string container = tree_.Container(t.id.fqn);
    if (OutBefore(t, container, Role::kOutput) ||
        MayHandOn(container, Role::kInput, t) ||
        !IsSeen(container, Role::kInput)) {
      return std::nullopt;
    }
    return Blame{container, DirectionOf(t), Stage::kCompute,
                 Between(t, container, Role::kOutput),
                 Within(t.id.fqn, container)};
  }

  std::optional<Blame> ForOutput(const TensorJudgement& t) const {
    if (tree_.AnyDivergedBelow(t.id.fqn, kForwardRoles) ||
        WorksOnErrors(t.id.fqn)) {
      return std::nullopt;
    }
    return Blame{t.id.fqn, DirectionOf(t), Stage::kCompute,
                 "its output is out of bounds when it is given the reference's "
                 "inputs" +
                     Inside(t.id.fqn)};
  }

  std::optional<Blame> ForLoss() const {
    const bool recorded = !tree_.Of("", Role::kOutput).empty();
    if (recorded ? tree_.AnyDiverged("", {Role::kOutput}, false)
                 : tree_.AnyDivergedBelow("", kForwardRoles)) {
      return std::nullopt;
    }
    return Blame{"loss", Direction::kForward, Stage::kCompute,
                 "the model's outputs are within bounds"};
  }

  std::optional<Blame> ForGradOutput(const TensorJudgement& t) const {
    if (t.id.fqn.empty()) {
      if (tree_.AnyDiverged("", {Role::kOutput}, false) ||
          tree_.AnyDiverged("loss", {Role::kLoss}, false)) {
        return std::nullopt;
      }
      return Blame{"loss", Direction::kBackward, Stage::kCompute,
                   "the gradient that the loss sends into the model is out of "
                   "bounds while the loss is within bounds"};
    }
    const std::string container = GradientFrom(t);
    if (OutBefore(t, container, Role::kGradInput) ||
        MayHandOn(container, Role::kGradOutput, t) ||
        MayHandOn(container, Role::kInput, t) || ForwardOutIn(container) ||
        !IsSeen(container, Role::kGradOutput)) {
      return std::nullopt;
    }
    // The gradient at the model's outputs is an edge too: what comes out of the
    // loss reaches the last modules through the model's own code.
    if (container.empty() && tree_.Of("", Role::kGradOutput).empty() &&
        tree_.AnyDiverged("loss", {Role::kLoss}, false)) {
      return std::nullopt;
    }
    return Blame{container, Direction::kBackward, Stage::kCompute,
                 Between(t, container, Role::kGradInput),
                 Within(t.id.fqn, container)};
  }

  std::optional<Blame> ForGradInput(const TensorJudgement& t) const {
    if (ModuleForwardOut(t.id.fqn) ||
        tree_.AnyDivergedBelow(t.id.fqn, kModuleRoles)) {
      return std::nullopt;
    }
    return Blame{tree_.CodeOf(t.id.fqn), Direction::kBackward, Stage::kCompute,
                 "the gradient leaving through its input is out of bounds when "
                 "it is given the reference's inputs and arriving gradients" +
                     Inside(t.id.fqn)};
  }

  std::optional<Blame> ForGradLocal(const TensorJudgement& t) const {
    if (OwnerOut(t) || UserOut(t)) return std::nullopt;
    return Blame{t.id.fqn, Direction::kBackward, Stage::kCompute,
                 "its gradient before any reduction is out of bounds when its "
                 "module is given the reference's inputs and arriving "
                 "gradients",
                 t.id.fqn};
  }

  std::optional<Blame> ForGradReduced(const TensorJudgement& t) const {
    const auto& local = tree_.Of(t.id.fqn, Role::kGradLocal);
    if (local.empty()
            ? OwnerOut(t) || UserOut(t)
            : tree_.AnyDiverged(t.id.fqn, {Role::kGradLocal}, false)) {
      return std::nullopt;
    }
    if (DividedByWrongCount(t)) return std::nullopt;
    return Blame{t.id.fqn, Direction::kBackward, Stage::kCommunication,
                 local.empty()
                     ? "its module is within bounds on the reference's values, "
                       "and no gradient was handed to a reduction"
                     : "made from the reference's values, the local gradients, "
                       "merged, are within bounds; the reduced gradient is "
                       "not"};
  }

  // The gradients of a loss that is summed over tokens are divided by their
  // count, which the loss function returns and nothing replaces. A wrong count
  // is the loss function's fault, and explains gradients that are nothing but
  // the reference's times the inverse ratio of the counts.
  bool DividedByWrongCount(const TensorJudgement& t) const {
    const LegJudgement* gradient = t.convicting();
    if (gradient == nullptr || !(gradient->stats.sum_sq_ref > 0)) return false;
    const ErrorStats& stats = gradient->stats;
    const double factor = stats.projection();
    if (!FactorExplains(stats, gradient->bound)) return false;
    const auto& losses = tree_.Of("loss", Role::kLoss);
    return std::any_of(losses.begin(), losses.end(), [&](const auto* loss) {
      if (loss->id.arg != "tokens" || !loss->out_isolated()) return false;
      const LegJudgement* count = loss->convicting();
      return count != nullptr && count->stats.sum_sq_ref > 0 &&
             std::fabs(factor * count->stats.projection() - 1) <=
                 std::fmax(1e-6, gradient->bound);
    });
  }

  bool ModuleForwardOut(const std::string& fqn) const {
    return tree_.AnyDiverged(fqn, {Role::kOutput}, false) || WorksOnErrors(fqn);
  }

  // The module that a parameter belongs to is out by itself or below. One that
  // is not recorded computes inside the module that contains it.
  bool OwnerOut(const TensorJudgement& t) const {
    std::string owner = ParentName(t.id.fqn);
    if (tree_.Of(owner, Role::kOutput).empty() &&
        tree_.Of(owner, Role::kGradOutput).empty()) {
      owner = tree_.Container(t.id.fqn);
    }
    return ModuleForwardOut(owner) ||
           tree_.AnyDiverged(owner, {Role::kGradInput}, false) ||
           tree_.AnyDivergedBelow(owner, kModuleRoles);
  }

  // The code that uses a parameter which its module hands out: that of the
  // innermost module around it that does not hand it on.
  bool UserOut(const TensorJudgement& t) const {
    if (!escaped_.parameters.contains(t.id.fqn)) return false;
    const std::string owner = ParentName(t.id.fqn);
    std::string user = tree_.Container(owner);
    while (!user.empty() && escaped_.modules.contains(user)) {
      user = tree_.Container(user);
    }
    // The same code hands gradients to what the owner computes.
    return ModuleForwardOut(user) ||
           tree_.AnyDiverged(user, {Role::kGradInput}, false) ||
           tree_.AnyDiverged(owner, {Role::kGradOutput}, false);
  }

  // Said of containers only.
  std::string Inside(const std::string& fqn) const {
    return children_.contains(fqn)
               ? ", and nothing inside it is: its own code after its children"
               : "";
  }

  ModuleTree tree_;
  const EscapedParameters& escaped_;
  // Tensors of the modules directly in a module, by its name.
  std::map<std::string, std::vector<const TensorJudgement*>> children_;
};

}  // namespace

IsolationOutcome LocalizeIsolated(const std::vector<TensorJudgement>& tensors,
                                  const EscapedParameters& escaped_parameters,
                                  const FusedModules& fused) {
  IsolationOutcome out;
  std::map<int, std::vector<const TensorJudgement*>> by_iteration;
  for (const TensorJudgement& t : tensors) {
    if (t.isolated || t.id.role == Role::kBuffer) {
      by_iteration[t.id.iteration].push_back(&t);
    }
    if (!t.isolated) continue;
    ++out.of;
    out.judged += t.judged_isolated();
    if (t.judged_isolated() && !t.out_isolated()) {
      out.worst_clean = std::max(out.worst_clean, t.isolated->headroom);
    }
  }
  CulpritList culprits("isolation");
  for (const auto& [iteration, of_iteration] : by_iteration) {
    const IsolationJudge judge(of_iteration, escaped_parameters, fused);
    const CarriedBuffers carried(of_iteration);
    Comparable comparable;
    for (const auto* t : of_iteration) comparable.Add(t->id);
    for (const TensorJudgement* t : of_iteration) {
      if (!t->out_isolated()) continue;
      const auto blame = judge.BlameFor(*t);
      if (!blame) {
        out.explained.insert(t->id);
      } else if (const auto* buffer = carried.OwnedBy(*blame)) {
        out.blamed[t->id] =
            culprits.Add(*buffer, OfBuffer(*buffer, *blame), buffer->headroom,
                         buffer->ranks, comparable.CountFor(Role::kBuffer));
      } else {
        out.blamed[t->id] =
            culprits.Add(*t, *blame, t->isolated->headroom, t->isolated->ranks,
                         comparable.CountFor(t->id.role));
      }
    }
  }
  out.culprits = culprits.Take();
  return out;
}

}  // namespace ttrace
