#include "src/check/conclusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/judge/reason_words.h"
#include "src/localize/contradiction_words.h"

namespace ttrace {
namespace {

bool HasNoise(const SideSummary& side) {
  return std::any_of(side.legs.begin(), side.legs.end(),
                     [](const Leg& leg) { return leg.is_noise(); });
}

// ", first fc output 0: the candidate has no such tensor"
std::string FirstUnexplained(const CheckResult& result) {
  for (const TensorJudgement& t : result.tensors) {
    if (t.verdict != TensorVerdict::kUnmatched || t.explained) continue;
    return fmt::format(", first {} {}{}{}: {}",
                       t.id.fqn.empty() ? "the model" : t.id.fqn,
                       ToString(t.id.role), t.id.arg.empty() ? "" : " ",
                       t.id.arg, ReasonWords(t.reason));
  }
  return "";
}

// The reference and its reruns are made once.
std::string AgainWith(const SideSummary& reference) {
  return fmt::format("ttrace diff -o NEW --reference-trace {} --candidate CMD",
                     reference.folder);
}

// What was compared is equal: whether that is all there is.
Conclusion ConcludeBits(const CheckResult& result, bool all_equal) {
  if (all_equal) {
    return {Verdict::kBitwiseEqual,
            fmt::format("the same computation bit for bit: all {} tensors",
                        result.coverage.compared)};
  }
  const auto first = std::find_if(
      result.tensors.begin(), result.tensors.end(),
      [](const TensorJudgement& t) {
        return !t.explained && t.verdict == TensorVerdict::kNotCheckable;
      });
  return {
      Verdict::kInconclusive,
      first == result.tensors.end()
          ? "not all tensors could be compared"
          : fmt::format("{} {} could not be compared: {}",
                        first->id.fqn.empty() ? "the model" : first->id.fqn,
                        ToString(first->id.role), ReasonWords(first->reason))};
}

// Digests tell no distance, but whether there is one.
bool HasDigests(const CheckResult& result) {
  return result.by_fidelity[static_cast<size_t>(Fidelity::kDigest)] > 0;
}

}  // namespace

Conclusion Conclude(const CheckResult& result, const ConclusionInput& input) {
  bool all_equal = true;
  for (const TensorJudgement& t : result.tensors) {
    if (t.verdict == TensorVerdict::kUnmatched || t.explained) continue;
    all_equal &= t.verdict == TensorVerdict::kBitwiseEqual;
  }
  if (!result.culprits.empty()) {
    const Culprit& first = result.culprits.front();
    const std::string name = first.fqn.empty() ? "the model" : first.fqn;
    return {
        Verdict::kDiverged,
        fmt::format(
            "first at {} ({}, {}), iteration {}{}", name,
            ToString(first.direction), ToString(first.stage), first.iteration,
            first.classes.empty()
                ? ""
                : fmt::format(", class {}",
                              LetterOf(first.classes.front().bug_class)))};
  }
  if (!result.contested.empty()) {
    return {Verdict::kInconclusive, ContestWords(result.contested.front())};
  }
  for (const RunNote& note : result.notes) {
    if (note.leaves_verdict_open()) {
      return {Verdict::kInconclusive, NoteWords(note)};
    }
  }
  if (result.coverage.compared == 0) {
    return {Verdict::kInconclusive, "nothing was compared"};
  }
  if (!result.has_reference) {
    if (input.replica_groups == 0 && input.replayed_steps == 0) {
      std::string text =
          "no reference, no value is held by more than one rank, and no "
          "optimizer's step could be made again";
      if (input.step_gap) text += "; " + ReasonWords(*input.step_gap);
      return {Verdict::kInconclusive, text};
    }
    return {Verdict::kWithin,
            fmt::format("without a reference only copies ({} tensors), finite "
                        "values, the gradient norm and the optimizer's steps "
                        "({} of parameters) were checked",
                        input.replica_groups, input.replayed_steps)};
  }
  const int64_t unexplained =
      result.coverage.reference_only + result.coverage.candidate_only;
  if (unexplained > 0) {
    return {Verdict::kInconclusive,
            fmt::format("{} tensor{} without a partner or not whole{}",
                        unexplained, unexplained == 1 ? " is" : "s are",
                        FirstUnexplained(result))};
  }
  if (result.bitwise) return ConcludeBits(result, all_equal);
  if (!input.evidence.any) {
    return {Verdict::kInconclusive,
            input.evidence.missing.empty()
                ? "nothing that the runs computed is checkable"
                : "nothing that the runs computed is checkable: " +
                      NoteWords(input.evidence.missing.front())};
  }
  if (!input.evidence.missing.empty()) {
    return {Verdict::kInconclusive, NoteWords(input.evidence.missing.front())};
  }
  const auto is_uncertain = [](const TensorJudgement& t) {
    return t.reason.kind == ReasonKind::kUncertain && !t.explained;
  };
  const auto first =
      std::find_if(result.tensors.begin(), result.tensors.end(), is_uncertain);
  if (first != result.tensors.end()) {
    const auto uncertain =
        std::count_if(first, result.tensors.end(), is_uncertain);
    return {Verdict::kInconclusive,
            fmt::format("summaries cannot tell whether {} tensor{} within "
                        "bounds, first {} {}: {}",
                        uncertain, uncertain == 1 ? " is" : "s are",
                        first->id.fqn.empty() ? "the model" : first->id.fqn,
                        ToString(first->id.role), ReasonWords(first->reason))};
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
    if (result.bitwise) {
      out.push_back(fmt::format(
          "whether that is round-off, with reruns of the reference: ttrace "
          "check {} {}",
          result.reference.folder, result.candidate.folder));
    } else if (result.has_reference) {
      out.push_back("after a fix: " + AgainWith(result.reference));
    } else {
      out.push_back(
          "compare with a trusted run: ttrace diff --reference CMD --candidate "
          "CMD -o DIR");
    }
  } else if (result.verdict == Verdict::kInconclusive) {
    for (const RunNote& note : result.notes) {
      if (note.leaves_verdict_open() && !note.way_out.empty() &&
          std::find(out.begin(), out.end(), note.way_out) == out.end()) {
        out.push_back(note.way_out);
      }
    }
    if (result.has_reference && HasDigests(result) && !result.bitwise) {
      out.push_back(fmt::format("ttrace check --bitwise {} {}",
                                result.reference.folder,
                                result.candidate.folder));
    }
    if (result.has_reference && !HasNoise(result.reference)) {
      out.push_back(
          "record the reference again with its noise legs: ttrace record -o "
          "NEW --as-reference -- CMD");
    } else if (result.has_reference) {
      out.push_back("another try: " + AgainWith(result.reference));
    }
    out.push_back(fmt::format("ttrace inspect {}", result.candidate.folder));
    if (result.has_reference) {
      out.push_back(fmt::format("ttrace inspect {}", result.reference.folder));
    }
  }
  return out;
}

}  // namespace ttrace
