#include "src/localize/dataflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "src/base/count_words.h"
#include "src/experiment/module_names.h"
#include "src/localize/blame.h"
#include "src/localize/carried_buffers.h"
#include "src/localize/module_tree.h"
#include "src/measure/exact_values.h"

namespace ttrace {
namespace {

// What of an iteration has been seen to be out so far, in execution order.
struct Seen {
  bool state = false;     // parameters or data
  bool forward = false;   // activations or loss
  bool backward = false;  // activation gradients, recomputed activations
  bool reduced = false;   // reduced gradients
};

// Whether one of them was found to be within or out of bounds.
bool AnyIsJudged(const std::vector<const TensorJudgement*>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto* t) {
    return t->verdict != TensorVerdict::kNotCheckable;
  });
}

// What is said of a tensor that is no culprit, and of one that is out.
struct Words {
  std::string_view fine;
  std::string_view out;
};
constexpr Words kOfBounds = {"within bounds", "out of bounds"};
constexpr Words kOfBits = {"equal", "another one"};

// Whether two tensors that are out hold the same values, on both sides.
bool OfTheSameValues(const TensorJudgement& a, const TensorJudgement& b) {
  if (a.legs.empty() || b.legs.empty()) return false;
  const ErrorStats& one = a.legs.front().stats;
  const ErrorStats& other = b.legs.front().stats;
  return one.count == other.count && one.sum_sq_err == other.sum_sq_err &&
         one.sum_err_ref == other.sum_err_ref &&
         one.sum_sq_ref == other.sum_sq_ref;
}

// Parameters of one iteration whose gradients the reference alone has.
struct AbsentGradients {
  std::set<std::string> local;
  std::set<std::string> reduced;

  void Add(const TensorJudgement& t) {
    if (t.excused || t.reason.kind != ReasonKind::kNotInCandidate) return;
    if (t.id.role == Role::kGradLocal) local.insert(t.id.fqn);
    if (t.id.role == Role::kGradReduced) reduced.insert(t.id.fqn);
  }
};

class Judge {
 public:
  Judge(const ModuleTree& tree, const AbsentGradients& absent,
        bool dirty_parameters, bool bitwise)
      : tree_(tree),
        absent_(absent),
        dirty_parameters_(dirty_parameters),
        bitwise_(bitwise),
        words_(bitwise ? kOfBits : kOfBounds) {}

  std::optional<Blame> BlameFor(const TensorJudgement& t,
                                const Seen& seen) const {
    switch (t.id.role) {
      case Role::kData:
        return Blame{"data", Direction::kForward, Stage::kInput,
                     "what the loop reads as its data differs"};
      case Role::kParam:
      case Role::kBuffer:
        return Blame{t.id.fqn, Direction::kForward, Stage::kInput,
                     "it differs before the first step"};
      case Role::kInput:
        return ForInput(t, seen);
      case Role::kOutput:
        return ForOutput(t, seen);
      case Role::kLoss:
        if (seen.forward || seen.state) return std::nullopt;
        return Blame{"loss", Direction::kForward, Stage::kCompute,
                     fmt::format("all activations are {}", words_.fine)};
      case Role::kGradOutput:
        return ForGradOutput(t, seen);
      case Role::kGradInput:
        return ForGradInput(t, seen);
      case Role::kGradLocal:
        return ForGradLocal(t, seen);
      case Role::kGradReduced:
        return ForGradReduced(t, seen);
      case Role::kGradNorm:
        return ForGradNorm(t, seen);
      case Role::kParamUpdated:
      case Role::kOptimState:
        if (t.step_differs()) {
          return Blame{t.id.fqn, Direction::kUpdate, Stage::kOptimizer,
                       "its step does not make it of what its rank recorded "
                       "before the step"};
        }
        if (tree_.AnyDiverged(t.id.fqn, {Role::kGradReduced, Role::kParam},
                              false) ||
            ClippedByOtherNorms(t)) {
          return std::nullopt;
        }
        if (absent_.reduced.contains(t.id.fqn)) return ForAbsentGradient(t);
        return Blame{t.id.fqn, Direction::kUpdate, Stage::kOptimizer,
                     fmt::format("its reduced gradient is {}", words_.fine)};
    }
    return std::nullopt;
  }

 private:
  // How far from its bound, which bits have none.
  std::string Headroom(const char* what, double headroom) const {
    return bitwise_ ? "" : fmt::format(" ({} {:.2g})", what, headroom);
  }

  // `beside`: what the sentence begins with that is so too.
  std::string Worst(const std::vector<const TensorJudgement*>& tensors,
                    const char* what, const std::string& beside = "") const {
    double worst = 0;
    for (const auto* t : tensors) worst = std::max(worst, t->headroom);
    return fmt::format("{}its {} {} {}{}", beside,
                       Counted(static_cast<int64_t>(tensors.size()), what),
                       tensors.size() == 1 && beside.empty() ? "is" : "are",
                       words_.fine, Headroom("worst headroom", worst));
  }

  Blame ForAbsentGradient(const TensorJudgement& t) const {
    if (absent_.local.contains(t.id.fqn)) {
      return {t.id.fqn, Direction::kBackward, Stage::kCompute,
              "the candidate's backward gives it no gradient"};
    }
    return {t.id.fqn, Direction::kUpdate, Stage::kOptimizer,
            "its gradient is gone before the step"};
  }

  // Parameters that a module (or anything below it) uses are out.
  bool ParametersOut(const std::string& fqn) const {
    return dirty_parameters_ ||
           tree_.AnyDivergedBelow(fqn, {Role::kParam, Role::kBuffer});
  }

  bool ForwardOut(const std::string& fqn) const {
    return tree_.AnyDiverged(fqn, kForwardRoles, true) || ParametersOut(fqn);
  }

  // Ranks that scale equal gradients by the norms they have make copies that
  // differ. A step that was not made has another cause.
  bool ClippedByOtherNorms(const TensorJudgement& t) const {
    if (t.not_updated() || !t.replicas_differ) return false;
    const auto& norms = tree_.Of("grad_norm", Role::kGradNorm);
    return std::any_of(norms.begin(), norms.end(), [](const auto* norm) {
      return norm->diverged() && norm->replicas_differ;
    });
  }

  std::optional<Blame> ForGradNorm(const TensorJudgement& t,
                                   const Seen& seen) const {
    if (bitwise_) {
      // It is compared as a number: that of other gradients is another one.
      if (seen.reduced) return std::nullopt;
      return Blame{"grad_norm", Direction::kUpdate, Stage::kOptimizer,
                   "the gradients it is taken of are equal"};
    }
    if (!t.replicas_differ || t.headroom > 1) {
      return Blame{"grad_norm", Direction::kUpdate, Stage::kOptimizer,
                   "it is not the norm of the gradients it is taken of"};
    }
    // Norms of copies that differ differ.
    if (seen.reduced) return std::nullopt;
    return Blame{"grad_norm", Direction::kUpdate, Stage::kOptimizer,
                 "ranks report other norms of the same gradients"};
  }

  std::optional<Blame> ForInput(const TensorJudgement& t,
                                const Seen& seen) const {
    if (t.id.fqn.empty()) {
      if (seen.forward || t.id.pass == Pass::kRecompute) return std::nullopt;
      return Blame{"", Direction::kForward, Stage::kInput,
                   fmt::format("the model's own input {} differs", t.id.arg)};
    }
    if (seen.forward || seen.state || seen.backward) return std::nullopt;
    const bool recompute = t.id.pass == Pass::kRecompute;
    const std::string container = tree_.Container(t.id.fqn);
    return Blame{
        container, recompute ? Direction::kBackward : Direction::kForward,
        Stage::kCompute,
        fmt::format("{} of {}{} arrives wrong while everything before it is "
                    "{}: the code between modules, in {}",
                    t.id.arg, t.id.fqn, recompute ? " (recomputed)" : "",
                    words_.fine, NameOrModel(container))};
  }

  std::optional<Blame> ForOutput(const TensorJudgement& t,
                                 const Seen& seen) const {
    const auto& inputs = tree_.Of(t.id.fqn, Role::kInput);
    if (tree_.AnyDiverged(t.id.fqn, {Role::kInput}, false)) return std::nullopt;
    if (tree_.AnyDivergedBelow(t.id.fqn, kForwardRoles)) return std::nullopt;
    if (ParametersOut(t.id.fqn)) return std::nullopt;
    if (!AnyIsJudged(inputs) && (seen.forward || seen.state))
      return std::nullopt;
    const bool recompute = t.id.pass == Pass::kRecompute;
    if (recompute && seen.forward) return std::nullopt;
    return Blame{
        t.id.fqn, recompute ? Direction::kBackward : Direction::kForward,
        Stage::kCompute,
        !AnyIsJudged(inputs)
            ? fmt::format("nothing is known of its inputs, and nothing before "
                          "it is {}",
                          words_.out)
            : Worst(inputs, "input")};
  }

  std::optional<Blame> ForGradOutput(const TensorJudgement& t,
                                     const Seen& seen) const {
    if (seen.forward || seen.state || seen.backward) return std::nullopt;
    const std::string module = OutermostThatHandsOn(t);
    if (module.empty()) {
      return Blame{"loss", Direction::kBackward, Stage::kCompute,
                   fmt::format("the gradient that the loss sends into the "
                               "model is {} while the loss is {}",
                               words_.out, words_.fine)};
    }
    const std::string container = tree_.Container(module);
    return Blame{
        container, Direction::kBackward, Stage::kCompute,
        fmt::format(
            "the gradient arriving at {} is {} while nothing before it is: the "
            "code between modules, in {}",
            module, words_.out, NameOrModel(container))};
  }

  // The outermost module that hands on what `t` is the gradient of, or its own:
  // the hooks on one tensor run from the inside out, and its gradient comes
  // from outside of all of them.
  std::string OutermostThatHandsOn(const TensorJudgement& t) const {
    std::string outermost = t.id.fqn;
    for (std::string name = t.id.fqn; !name.empty();) {
      name = ParentName(name);
      const auto& arriving = tree_.Of(name, Role::kGradOutput);
      if (std::any_of(arriving.begin(), arriving.end(), [&](const auto* other) {
            return other->diverged() && OfTheSameValues(t, *other);
          })) {
        outermost = name;
      }
    }
    return outermost;
  }

  std::optional<Blame> ForGradInput(const TensorJudgement& t,
                                    const Seen& seen) const {
    const auto& arriving = tree_.Of(t.id.fqn, Role::kGradOutput);
    if (tree_.AnyDiverged(t.id.fqn, {Role::kGradOutput}, false) ||
        tree_.AnyDivergedBelow(t.id.fqn, kGradientRoles) ||
        ForwardOut(t.id.fqn)) {
      return std::nullopt;
    }
    if (!AnyIsJudged(arriving) &&
        (seen.forward || seen.backward || seen.state)) {
      return std::nullopt;
    }
    return Blame{
        tree_.CodeOf(t.id.fqn), Direction::kBackward, Stage::kCompute,
        !AnyIsJudged(arriving)
            ? fmt::format("nothing before it is {}", words_.out)
            : Worst(arriving, "arriving gradient", "its forward values and ")};
  }

  std::optional<Blame> ForGradLocal(const TensorJudgement& t,
                                    const Seen& seen) const {
    const std::string owner = ParentName(t.id.fqn);
    const auto& arriving = tree_.Of(owner, Role::kGradOutput);
    if (tree_.AnyDiverged(owner, {Role::kGradOutput}, false) ||
        ForwardOut(owner)) {
      return std::nullopt;
    }
    if (!AnyIsJudged(arriving) &&
        (seen.forward || seen.backward || seen.state)) {
      return std::nullopt;
    }
    return Blame{t.id.fqn, Direction::kBackward, Stage::kCompute,
                 fmt::format("the gradients and forward values of its module "
                             "are {}, its own gradient before any reduction "
                             "is not",
                             words_.fine)};
  }

  std::optional<Blame> ForGradReduced(const TensorJudgement& t,
                                      const Seen& seen) const {
    const auto& local = tree_.Of(t.id.fqn, Role::kGradLocal);
    const bool local_out =
        tree_.AnyDiverged(t.id.fqn, {Role::kGradLocal}, false);
    if (local_out) return std::nullopt;
    if (!AnyIsJudged(local)) {
      if (seen.forward || seen.backward || seen.state) return std::nullopt;
      return Blame{t.id.fqn, Direction::kBackward, Stage::kCommunication,
                   fmt::format("all activation gradients are {}, and no "
                               "gradient was handed to a reduction",
                               words_.fine)};
    }
    const auto* before = local.front();
    return Blame{
        t.id.fqn, Direction::kBackward, Stage::kCommunication,
        fmt::format("the local gradients, merged, are {}{}; the "
                    "reduced gradient is not",
                    words_.fine, Headroom("headroom", before->headroom))};
  }

  const ModuleTree& tree_;
  const AbsentGradients& absent_;
  bool dirty_parameters_;
  bool bitwise_;
  Words words_;
};

// Out of bound, and something was computed from it.
bool OutAndUsed(const TensorJudgement& t) {
  return t.id.role != Role::kParam && t.diverged();
}

void Remember(const TensorJudgement& t, const LocalizeOptions& options,
              Seen& seen) {
  switch (t.id.role) {
    case Role::kData:
      // Nothing was computed from what was replaced.
      seen.state |= !options.data_grafted;
      break;
    case Role::kParam:
      seen.state |= !options.weights_grafted;
      break;
    case Role::kBuffer:
      seen.state = true;
      break;
    case Role::kInput:
    case Role::kOutput:
    case Role::kLoss:
      (t.id.pass == Pass::kRecompute ? seen.backward : seen.forward) = true;
      break;
    case Role::kGradOutput:
    case Role::kGradInput:
      seen.backward = true;
      break;
    case Role::kGradReduced:
      seen.reduced = true;
      break;
    default:
      break;
  }
}

}  // namespace

Localization Localize(const std::vector<TensorJudgement>& tensors,
                      const LocalizeOptions& options) {
  Localization out;
  std::map<int, std::vector<const TensorJudgement*>> by_iteration;
  std::map<int, AbsentGradients> absent;
  for (const TensorJudgement& t : tensors) {
    if (t.verdict != TensorVerdict::kUnmatched) {
      by_iteration[t.id.iteration].push_back(&t);
    } else {
      absent[t.id.iteration].Add(t);
    }
  }

  CulpritList culprits("dataflow");
  bool dirty_parameters = false;
  for (const auto& [iteration, of_iteration] : by_iteration) {
    const ModuleTree tree =
        options.weights_grafted
            ? ModuleTree(of_iteration, options.fused, OutAndUsed)
            : ModuleTree(of_iteration, options.fused);
    const Judge judge(tree, absent[iteration], dirty_parameters,
                      options.bitwise);
    const CarriedBuffers carried(of_iteration);
    Comparable comparable;
    for (const auto* t : of_iteration) comparable.Add(t->id);
    // Several tensors show one step of one parameter.
    std::set<std::string> wrong_steps;
    Seen seen;
    seen.state = dirty_parameters;
    for (const TensorJudgement* t : of_iteration) {
      if (!t->diverged()) continue;
      std::optional<Blame> blame = judge.BlameFor(*t, seen);
      if (t->step_differs() && !wrong_steps.insert(t->id.fqn).second) {
        blame.reset();
      }
      Remember(*t, options, seen);
      if (!blame) {
        ++out.downstream;
        continue;
      }
      if (const TensorJudgement* buffer = carried.OwnedBy(*blame)) {
        culprits.Add(*buffer, OfBuffer(*buffer, *blame), buffer->headroom,
                     buffer->ranks, comparable.CountFor(Role::kBuffer));
        continue;
      }
      culprits.Add(*t, *blame, t->headroom, t->ranks,
                   comparable.CountFor(t->id.role));
    }
    if (!options.weights_grafted) {
      for (const auto* t : of_iteration) {
        dirty_parameters |= t->id.role == Role::kParamUpdated && t->diverged();
      }
    }
  }
  out.culprits = culprits.Take();
  return out;
}

}  // namespace ttrace
