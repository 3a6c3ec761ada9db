// Judgements of a small transformer, written by hand: what the tests of
// isolation and of the agreement of both ways look at. In execution order:
//
//   embedding, layers.{0,1}.{norm, attn.{qkv, core, proj}, mlp}, head, loss
//
// each with input x (core: q and k), output 0, their gradients and, but for
// core, a weight. All within bounds until broken.

#ifndef TTRACE_SRC_LOCALIZE_TESTING_ISOLATED_RUN_H_
#define TTRACE_SRC_LOCALIZE_TESTING_ISOLATED_RUN_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/experiment/escaped_parameters.h"
#include "src/experiment/fused_modules.h"
#include "src/localize/agreement.h"
#include "src/localize/dataflow.h"
#include "src/localize/isolation.h"

namespace ttrace {

class IsolatedRun {
 public:
  IsolatedRun() {
    for (const int iteration : {0, 1}) AddIteration(iteration);
  }

  // Out of bound in the isolated leg.
  IsolatedRun& Alone(const std::string& fqn, Role role,
                     const std::string& arg = "", int iteration = 0) {
    ForEach(
        fqn, role, arg,
        [](TensorJudgement& t) {
          t.isolated->verdict = TensorVerdict::kDiverged;
          t.isolated->headroom = 20;
          t.isolated->ranks = {1};
        },
        iteration);
    return *this;
  }
  // Out of bound in the run as it was.
  IsolatedRun& EndToEnd(const std::string& fqn, Role role,
                        const std::string& arg = "", int iteration = 0) {
    ForEach(
        fqn, role, arg,
        [](TensorJudgement& t) {
          t.verdict = TensorVerdict::kDiverged;
          t.headroom = 10;
          t.ranks = {0};
        },
        iteration);
    return *this;
  }
  IsolatedRun& NotReplaced(const std::string& fqn, Role role) {
    ForEach(fqn, role, "",
            [](TensorJudgement& t) { t.isolated->replaced = false; });
    return *this;
  }
  IsolatedRun& NotJudgedAlone(const std::string& fqn, Role role) {
    ForEach(fqn, role, "", [](TensorJudgement& t) { t.isolated.reset(); });
    return *this;
  }
  IsolatedRun& Verdict(const std::string& fqn, Role role,
                       TensorVerdict verdict) {
    ForEach(fqn, role, "",
            [verdict](TensorJudgement& t) { t.verdict = verdict; });
    return *this;
  }
  // A parameter or buffer more, judged in the run as it was.
  IsolatedRun& State(const std::string& fqn, Role role, TensorVerdict verdict) {
    TensorJudgement t;
    t.id = TensorId{fqn, role, 0, 0, "", Pass::kForward};
    t.verdict = verdict;
    tensors_.insert(tensors_.begin(), t);
    return *this;
  }
  // A buffer as the second iteration finds it, out of bounds.
  IsolatedRun& Carried(const std::string& fqn, double headroom) {
    const auto first = std::find_if(
        tensors_.begin(), tensors_.end(),
        [](const TensorJudgement& t) { return t.id.iteration == 1; });
    TensorJudgement t;
    t.id = TensorId{fqn, Role::kBuffer, 1, 0, "", Pass::kForward};
    t.order = first->order;
    t.verdict = TensorVerdict::kNotCheckable;
    t.carried = t.excused = true;
    t.reason = Because(ReasonKind::kOwnStatistic);
    t.headroom = headroom;
    tensors_.insert(first, t);
    return *this;
  }
  // What is measured in the isolated leg.
  IsolatedRun& InLeg(const std::string& fqn, Role role,
                     const LegJudgement& leg) {
    ForEach(fqn, role, "", [&](TensorJudgement& t) {
      t.isolated->deciding_leg = static_cast<int>(t.legs.size());
      t.legs.push_back(leg);
    });
    return *this;
  }
  // The loss function counts other tokens.
  IsolatedRun& LossTokens(const LegJudgement& leg) {
    for (TensorJudgement& t : tensors_) {
      if (t.id.role == Role::kLoss && t.id.iteration == 0) t.id.arg = "tokens";
    }
    Alone("loss", Role::kLoss);
    return InLeg("loss", Role::kLoss, leg);
  }
  // Of two gradients that are one tensor, the module's is seen first.
  IsolatedRun& SeenFirst(const std::string& module,
                         const std::string& container) {
    TensorJudgement* at[2] = {nullptr, nullptr};
    for (TensorJudgement& t : tensors_) {
      if (t.id.role != Role::kGradOutput || t.id.iteration != 0) continue;
      if (t.id.fqn == container) at[0] = &t;
      if (t.id.fqn == module) at[1] = &t;
    }
    if (at[0] == nullptr || at[1] == nullptr) {
      ADD_FAILURE() << module << " or " << container;
      return *this;
    }
    std::swap(*at[0], *at[1]);
    std::swap(at[0]->order, at[1]->order);
    return *this;
  }
  // A second pass of the same forward.
  IsolatedRun& Recompute(const std::string& fqn, Role role, bool out) {
    for (const TensorJudgement& t : tensors_) {
      if (t.id.fqn != fqn || t.id.role != role || t.id.iteration != 0) continue;
      TensorJudgement again = t;
      again.id.pass = Pass::kRecompute;
      again.order = static_cast<int64_t>(tensors_.size());
      again.isolated->verdict =
          out ? TensorVerdict::kDiverged : TensorVerdict::kWithin;
      again.isolated->headroom = out ? 20 : 0.1;
      tensors_.push_back(again);
      return *this;
    }
    ADD_FAILURE() << fqn;
    return *this;
  }

  // A module returns one of its parameters, and those around it hand it on.
  IsolatedRun& HandsOut(const std::string& parameter,
                        const std::set<std::string>& modules) {
    escaped_.parameters.insert(parameter);
    escaped_.modules.insert(modules.begin(), modules.end());
    return *this;
  }

  // Each norm is part of the linear behind it.
  IsolatedRun& FuseNorms() {
    for (const std::string layer : {"layers.0", "layers.1"}) {
      fused_.within[layer + ".norm"] = layer + ".attn.qkv";
    }
    std::erase_if(tensors_, [](const TensorJudgement& t) {
      const auto& [fqn, role] = std::tie(t.id.fqn, t.id.role);
      return fqn.ends_with(".norm")
                 ? role == Role::kOutput || role == Role::kGradOutput
                 : (fqn.ends_with(".attn") || fqn.ends_with(".qkv")) &&
                       (role == Role::kInput || role == Role::kGradInput);
    });
    return *this;
  }

  IsolationOutcome Isolate() const {
    return LocalizeIsolated(tensors_, escaped_, fused_);
  }
  Localization Flow() const {
    return Localize(tensors_, {.weights_grafted = true, .fused = fused_});
  }
  Agreement Join() const { return Agree(tensors_, Flow(), Isolate()); }
  const std::vector<TensorJudgement>& tensors() const { return tensors_; }

 private:
  template <typename Change>
  void ForEach(const std::string& fqn, Role role, const std::string& arg,
               Change change, int iteration = 0) {
    bool found = false;
    for (TensorJudgement& t : tensors_) {
      if (t.id.fqn != fqn || t.id.role != role || t.id.iteration != iteration ||
          (!arg.empty() && t.id.arg != arg)) {
        continue;
      }
      found = true;
      change(t);
    }
    EXPECT_TRUE(found) << fqn;
  }

  void Add(const std::string& fqn, Role role, int iteration,
           const std::string& arg, Pass pass) {
    TensorJudgement t;
    t.id = TensorId{fqn, role, iteration, 0, arg, pass};
    t.order = static_cast<int64_t>(tensors_.size());
    t.verdict = TensorVerdict::kWithin;
    t.headroom = 0.1;
    if (role != Role::kParam && role != Role::kParamUpdated) {
      t.isolated = TensorJudgement::Isolated();
      t.isolated->verdict = TensorVerdict::kWithin;
      t.isolated->headroom = 0.2;
    }
    tensors_.push_back(t);
  }

  void Forward(const std::string& fqn, int i, bool leaf = true,
               const std::vector<std::string>& args = {"x"}) {
    for (const auto& arg : args) Add(fqn, Role::kInput, i, arg, Pass::kForward);
    if (leaf) Add(fqn, Role::kOutput, i, "0", Pass::kForward);
  }
  void Output(const std::string& fqn, int i) {
    Add(fqn, Role::kOutput, i, "0", Pass::kForward);
  }
  void Arrive(const std::string& fqn, int i) {
    Add(fqn, Role::kGradOutput, i, "0", Pass::kBackward);
  }
  void Leave(const std::string& fqn, int i,
             const std::vector<std::string>& args = {"x"}) {
    for (const auto& arg : args) {
      Add(fqn, Role::kGradInput, i, arg, Pass::kBackward);
    }
  }

  void AddIteration(int i) {
    const std::vector<std::string> layers = {"layers.0", "layers.1"};
    std::vector<std::string> weights = {"embedding.weight", "head.weight"};
    for (const auto& l : layers) {
      for (const char* name : {".norm", ".attn.qkv", ".attn.proj", ".mlp"}) {
        weights.push_back(l + name + ".weight");
      }
    }
    for (const auto& w : weights) Add(w, Role::kParam, i, "", Pass::kForward);
    Forward("", i, false);
    Forward("embedding", i);
    for (const auto& l : layers) {
      Forward(l, i, false);
      Forward(l + ".norm", i);
      Forward(l + ".attn", i, false);
      Forward(l + ".attn.qkv", i);
      Forward(l + ".attn.core", i, true, {"q", "k"});
      Forward(l + ".attn.proj", i);
      Output(l + ".attn", i);
      Forward(l + ".mlp", i);
      Output(l, i);
    }
    Forward("head", i);
    Output("", i);
    Add("loss", Role::kLoss, i, "value", Pass::kForward);
    Arrive("", i);
    Arrive("head", i);
    Leave("head", i);
    for (const auto& l : {layers[1], layers[0]}) {
      Arrive(l, i);
      Arrive(l + ".mlp", i);
      Leave(l + ".mlp", i);
      Arrive(l + ".attn", i);
      Arrive(l + ".attn.proj", i);
      Leave(l + ".attn.proj", i);
      Arrive(l + ".attn.core", i);
      Leave(l + ".attn.core", i, {"q", "k"});
      Arrive(l + ".attn.qkv", i);
      Leave(l + ".attn.qkv", i);
      Leave(l + ".attn", i);
      Arrive(l + ".norm", i);
      Leave(l + ".norm", i);
      Leave(l, i);
    }
    Arrive("embedding", i);
    for (const Role role : {Role::kGradLocal, Role::kGradReduced}) {
      for (const auto& w : weights) Add(w, role, i, "", Pass::kBackward);
    }
    for (const auto& w : weights) {
      Add(w, Role::kParamUpdated, i, "", Pass::kOptimizer);
    }
  }

  std::vector<TensorJudgement> tensors_;
  EscapedParameters escaped_;
  FusedModules fused_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_TESTING_ISOLATED_RUN_H_
