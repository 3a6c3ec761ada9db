#include "src/check/conclusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/experiment/leg_names.h"

namespace ttrace {
namespace {

// What the run computed, by what a reader would miss if it were not judged.
struct Computed {
  std::string_view what;
  std::vector<Role> roles;
};

// Equal tokens and weights say nothing about the computation.
const std::vector<Computed>& AllComputed() {
  static const auto& all = *new std::vector<Computed>{
      {"outputs of modules", {Role::kOutput}},
      {"gradients of activations", {Role::kGradOutput, Role::kGradInput}},
      {"gradients of parameters", {Role::kGradLocal, Role::kGradReduced}},
  };
  return all;
}

// Says what was judged too little to call the run the same computation:
// forward, backward or parameter gradients of which less than half has a usable
// bound. Empty if there is no such thing, and something was computed at all. A
// bound that is too wide for a few tensors is normal; for most of them it means
// that noise legs are missing or that the weights are in a chaotic state.
std::string TooFewCheckable(const std::vector<TensorJudgement>& tensors) {
  bool any = false;
  for (const Computed& computed : AllComputed()) {
    int64_t of = 0;
    int64_t checkable = 0;
    const TensorJudgement* first = nullptr;
    for (const TensorJudgement& t : tensors) {
      if (t.verdict == TensorVerdict::kUnmatched || t.explained ||
          std::find(computed.roles.begin(), computed.roles.end(), t.id.role) ==
              computed.roles.end()) {
        continue;
      }
      ++of;
      if (t.verdict != TensorVerdict::kNotCheckable || t.judged_alone()) {
        ++checkable;
      } else if (first == nullptr) {
        first = &t;
      }
    }
    any |= checkable > 0;
    if (2 * checkable >= of) continue;
    return fmt::format("{} of {} {} are not checkable{}{}", of - checkable, of,
                       computed.what, first->reason.empty() ? "" : ": ",
                       first->reason);
  }
  return any ? "" : "nothing that the runs computed is checkable";
}

bool HasNoise(const SideSummary& side) {
  return std::any_of(side.legs.begin(), side.legs.end(), IsNoiseLeg);
}

}  // namespace

Conclusion Conclude(const CheckResult& result,
                    const std::vector<std::string>& defects,
                    int64_t replica_groups) {
  int64_t diverged = 0;
  bool all_equal = true;
  for (const TensorJudgement& t : result.tensors) {
    if (t.verdict == TensorVerdict::kUnmatched || t.explained) continue;
    diverged += t.diverged();
    all_equal &= t.verdict == TensorVerdict::kBitwiseEqual;
  }
  if (diverged > 0 || result.isolation.faulty > 0) {
    const Culprit& first = result.culprits.front();
    const std::string name = first.fqn.empty() ? "the model" : first.fqn;
    return {Verdict::kDiverged,
            fmt::format("first at {} ({}, {}), iteration {}{}", name,
                        ToString(first.direction), ToString(first.stage),
                        first.iteration,
                        first.classes.empty()
                            ? ""
                            : ", class " + first.classes.front().letter)};
  }
  if (!defects.empty()) return {Verdict::kInconclusive, defects.front()};
  if (result.coverage.compared == 0) {
    return {Verdict::kInconclusive, "nothing was compared"};
  }
  if (result.has_reference) {
    const int64_t unexplained =
        result.coverage.reference_only + result.coverage.candidate_only;
    if (unexplained > 0) {
      return {Verdict::kInconclusive,
              fmt::format("{} tensors have no partner and no explanation",
                          unexplained)};
    }
    if (std::string open = TooFewCheckable(result.tensors); !open.empty()) {
      return {Verdict::kInconclusive, std::move(open)};
    }
  } else {
    if (replica_groups == 0) {
      return {Verdict::kInconclusive,
              "no reference, and no value is held by more than one rank"};
    }
    return {Verdict::kWithin,
            fmt::format("without a reference only copies ({} tensors), finite "
                        "values and the gradient norm were checked",
                        replica_groups)};
  }
  if (all_equal) return {Verdict::kBitwiseEqual, "every tensor is bit-equal"};
  return {Verdict::kWithin, "every checkable tensor is within its bound"};
}

std::vector<std::string> NextSteps(const CheckResult& result) {
  std::vector<std::string> out;
  if (result.verdict == Verdict::kDiverged) {
    const Culprit& first = result.culprits.front();
    out.push_back(fmt::format("ttrace inspect {} '{}'", result.candidate.folder,
                              first.tensor.fqn));
    if (result.has_reference) {
      out.push_back(fmt::format(
          "after a fix: ttrace record -o NEW --graft {} -- CMD && ttrace check "
          "{} NEW",
          result.reference.folder, result.reference.folder));
    } else {
      out.push_back(
          "compare with a trusted run: ttrace diff --reference CMD --candidate "
          "CMD -o DIR");
    }
  } else if (result.verdict == Verdict::kInconclusive) {
    if (result.has_reference && !HasNoise(result.reference)) {
      out.push_back(
          "record the reference again with its noise legs: ttrace record -o "
          "NEW --as-reference -- CMD");
    }
    out.push_back(fmt::format("ttrace inspect {}", result.candidate.folder));
    if (result.has_reference) {
      out.push_back(fmt::format("ttrace inspect {}", result.reference.folder));
    }
  }
  return out;
}

}  // namespace ttrace
