#include "src/check/conclusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
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

std::string ModelOr(const std::string& fqn) {
  return fqn.empty() ? "the model" : fqn;
}

// ", first fc output 0: the candidate has no such tensor"
std::string FirstUnexplained(const CheckResult& result) {
  for (const TensorJudgement& t : result.tensors) {
    if (t.verdict != TensorVerdict::kUnmatched || t.excused) continue;
    return fmt::format(", first {} {}{}{}: {}", ModelOr(t.id.fqn),
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

// The first tensor that `is`, or null.
template <typename Is>
const TensorJudgement* First(const CheckResult& result, const Is& is) {
  const auto found =
      std::find_if(result.tensors.begin(), result.tensors.end(), is);
  return found == result.tensors.end() ? nullptr : &*found;
}

bool AllEqual(const CheckResult& result) {
  return First(result, [](const TensorJudgement& t) {
           return t.verdict != TensorVerdict::kUnmatched && !t.excused &&
                  t.verdict != TensorVerdict::kBitwiseEqual;
         }) == nullptr;
}

// Digests tell no distance, but whether there is one. Whether nothing but
// `check --bitwise` can say more: digests without sketches, or the same
// topology, in which bits may be equal.
bool AreForBits(const CheckResult& result) {
  const auto compared_by = [&](Fidelity fidelity) {
    return result.by_fidelity[static_cast<size_t>(fidelity)] > 0;
  };
  return result.has_reference && !result.bitwise &&
         compared_by(Fidelity::kDigest) &&
         (!compared_by(Fidelity::kSketch) ||
          result.reference.mesh == result.candidate.mesh);
}

Conclusion Open(std::string reason) {
  return {Verdict::kInconclusive, std::move(reason)};
}

// A rule of the verdict: what it says, or nothing.
using Said = std::optional<Conclusion>;
using Rule = Said (*)(const CheckResult&, const ConclusionInput&);

Said Diverged(const CheckResult& result, const ConclusionInput&) {
  if (result.culprits.empty()) return std::nullopt;
  const Culprit& first = result.culprits.front();
  std::string text = fmt::format("first at {} ({}, {}), iteration {}",
                                 ModelOr(first.fqn), ToString(first.direction),
                                 ToString(first.stage), first.iteration);
  if (!first.classes.empty()) {
    text += fmt::format(", class {}", LetterOf(first.classes[0].bug_class));
  }
  return Conclusion{Verdict::kDiverged, std::move(text)};
}

Said Contested(const CheckResult& result, const ConclusionInput&) {
  if (result.contested.empty()) return std::nullopt;
  return Open(ContestWords(result.contested.front()));
}

Said LeftOpenByNote(const CheckResult& result, const ConclusionInput&) {
  for (const RunNote& note : result.notes) {
    if (note.leaves_verdict_open()) return Open(NoteWords(note));
  }
  return std::nullopt;
}

Said NothingCompared(const CheckResult& result, const ConclusionInput&) {
  if (result.coverage.compared > 0) return std::nullopt;
  return Open("nothing was compared");
}

Said WithoutReference(const CheckResult& result, const ConclusionInput& input) {
  if (result.has_reference) return std::nullopt;
  if (input.replica_groups == 0 && input.replayed_steps == 0) {
    std::string text =
        "no reference, no value is held by more than one rank, and no "
        "optimizer's step could be made again";
    if (input.step_gap) text += "; " + ReasonWords(*input.step_gap);
    return Open(std::move(text));
  }
  return Conclusion{
      Verdict::kWithin,
      fmt::format("without a reference only copies ({} tensors), finite "
                  "values, the gradient norm and the optimizer's steps "
                  "({} of parameters) were checked",
                  input.replica_groups, input.replayed_steps)};
}

Said WithoutPartner(const CheckResult& result, const ConclusionInput&) {
  const int64_t count =
      result.coverage.reference_only + result.coverage.candidate_only;
  if (count == 0) return std::nullopt;
  return Open(fmt::format("{} tensor{} without a partner or not whole{}", count,
                          count == 1 ? " is" : "s are",
                          FirstUnexplained(result)));
}

// Of bits: what was compared is equal, and this is whether that is all.
Said NotAllBits(const CheckResult& result, const ConclusionInput&) {
  if (!result.bitwise || AllEqual(result)) return std::nullopt;
  const TensorJudgement* first = First(result, [](const TensorJudgement& t) {
    return !t.excused && t.verdict == TensorVerdict::kNotCheckable;
  });
  if (first == nullptr) return Open("not all tensors could be compared");
  return Open(fmt::format("{} {} could not be compared: {}",
                          ModelOr(first->id.fqn), ToString(first->id.role),
                          ReasonWords(first->reason)));
}

Said SameBits(const CheckResult& result, const ConclusionInput&) {
  if (!result.bitwise) return std::nullopt;
  const int64_t left_out = result.coverage.excused_count();
  std::string text =
      fmt::format("the same computation bit for bit: all {} tensors",
                  result.coverage.compared);
  if (left_out > 0) {
    text += fmt::format(" that are compared, and {} are not", left_out);
  }
  return Conclusion{Verdict::kBitwiseEqual, std::move(text)};
}

Said NothingCheckable(const CheckResult&, const ConclusionInput& input) {
  if (input.evidence.any) return std::nullopt;
  std::string text = "nothing that the runs computed is checkable";
  if (!input.evidence.missing.empty()) {
    text += ": " + NoteWords(input.evidence.missing.front());
  }
  return Open(std::move(text));
}

Said EvidenceMissing(const CheckResult&, const ConclusionInput& input) {
  if (input.evidence.missing.empty()) return std::nullopt;
  return Open(NoteWords(input.evidence.missing.front()));
}

Said SummariesTooCoarse(const CheckResult& result, const ConclusionInput&) {
  const auto is_uncertain = [](const TensorJudgement& t) {
    return t.reason.kind == ReasonKind::kUncertain && !t.excused;
  };
  const TensorJudgement* first = First(result, is_uncertain);
  if (first == nullptr) return std::nullopt;
  const auto count =
      std::count_if(result.tensors.begin(), result.tensors.end(), is_uncertain);
  return Open(
      fmt::format("summaries cannot tell whether {} tensor{} within "
                  "bounds, first {} {}: {}",
                  count, count == 1 ? " is" : "s are", ModelOr(first->id.fqn),
                  ToString(first->id.role), ReasonWords(first->reason)));
}

Said Within(const CheckResult& result, const ConclusionInput&) {
  if (AllEqual(result)) {
    return Conclusion{Verdict::kBitwiseEqual, "every tensor is bit-equal"};
  }
  return Conclusion{Verdict::kWithin,
                    "every checkable tensor is within its bound"};
}

// The first that says something decides; the last one always does.
constexpr Rule kRules[] = {
    Diverged,         Contested,       LeftOpenByNote,     NothingCompared,
    WithoutReference, WithoutPartner,  NotAllBits,         SameBits,
    NothingCheckable, EvidenceMissing, SummariesTooCoarse, Within};

}  // namespace

Conclusion Conclude(const CheckResult& result, const ConclusionInput& input) {
  Said said;
  for (const Rule rule : kRules) {
    said = rule(result, input);
    if (said) break;
  }
  return *std::move(said);  // the last rule always says something
}

std::vector<std::string> NextSteps(const CheckResult& result) {
  std::vector<std::string> out;
  if (result.verdict == Verdict::kDiverged) {
    const Culprit& first = result.culprits.front();
    out.push_back(fmt::format("ttrace inspect {} '{}'", result.candidate.folder,
                              first.tensor.fqn));
    if (result.bitwise) {
      out.emplace_back(
          "whether that is round-off, reruns tell: record both again without "
          "--bitwise, the reference with --as-reference, and check those");
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
    if (AreForBits(result)) {
      out.push_back(fmt::format("ttrace check --bitwise {} {}",
                                result.reference.folder,
                                result.candidate.folder));
    }
    // Whether bits are equal no rerun tells.
    const bool reruns = result.has_reference && !result.bitwise;
    if (reruns && !HasNoise(result.reference)) {
      out.push_back(
          "record the reference again with its noise legs: ttrace record -o "
          "NEW --as-reference -- CMD");
    } else if (reruns) {
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
