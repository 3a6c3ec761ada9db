#include "src/report/reason_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "src/base/format.h"
#include "src/base/rank_words.h"

namespace ttrace {
namespace {

int64_t CountOf(const Reason& reason, size_t i) {
  return i < reason.counts.size() ? reason.counts[i] : 0;
}

double NumberOf(const Reason& reason, size_t i) {
  return i < reason.numbers.size() ? reason.numbers[i] : 0;
}

constexpr const char* kNoneAsOften =
    "the reference reads none of them as often";

std::string WithRows(std::string text, const Reason& reason) {
  if (!reason.repeating.empty()) {
    return fmt::format("{}{}{} are fed the same rows; {}", text,
                       text.empty() ? "" : "; ", RankWords(reason.repeating),
                       kNoneAsOften);
  }
  if (reason.foreign_rows.empty()) return text;
  const size_t shown = std::min<size_t>(16, reason.foreign_rows.size());
  return fmt::format(
      "{}{}rows {}{} of the global batch are not the reference's", text,
      text.empty() ? "" : "; ",
      fmt::join(
          reason.foreign_rows.begin(),
          reason.foreign_rows.begin() + static_cast<std::ptrdiff_t>(shown),
          ", "),
      shown < reason.foreign_rows.size() ? ", ..." : "");
}

// Which parameters are counted otherwise, where that explains a norm.
std::string NormTermWords(const Reason& reason) {
  if (reason.detail.empty()) return "";
  if (CountOf(reason, 1) >= 0) {
    return fmt::format(
        "; it is that of the gradients of which, where they are cut along {}, "
        "only the part at coordinate {} is counted ({} parameters)",
        reason.detail, CountOf(reason, 1), CountOf(reason, 0));
  }
  const double weight = NumberOf(reason, 2);
  return fmt::format(
      "; it is that with {} ({} parameter{}) {}", reason.detail,
      CountOf(reason, 0), CountOf(reason, 0) == 1 ? "" : "s",
      weight == 0 ? "left out" : fmt::format("counted {:.4g} times", weight));
}

// What is known of why a side has no tensor; may be nothing.
std::string Detail(const Reason& reason) {
  return reason.detail.empty() ? "" : ": " + reason.detail;
}

std::string Words(const Reason& reason) {
  switch (reason.kind) {
    case ReasonKind::kNone:
      return "";
    case ReasonKind::kNotInReference:
      return "the reference has no such tensor" + Detail(reason);
    case ReasonKind::kNotInCandidate:
      return "the candidate has no such tensor" + Detail(reason);
    case ReasonKind::kNoCommonLeg:
      return "no leg of both sides has it";
    case ReasonKind::kNotComparable:
    case ReasonKind::kDamaged:
      return reason.detail;
    case ReasonKind::kElementsMissing:
      if (CountOf(reason, 0) + CountOf(reason, 1) + CountOf(reason, 3) == 0) {
        return fmt::format(
            "neither run has {} of its elements, as of what a part of the "
            "micro-batches or ranks made",
            CountOf(reason, 2));
      }
      return fmt::format(
          "{} of its elements are missing in the candidate, {} in the "
          "reference, {} in both, {} lie in overlapping pieces",
          CountOf(reason, 0), CountOf(reason, 1), CountOf(reason, 2),
          CountOf(reason, 3));
    case ReasonKind::kIterationCut:
      return "its iteration did not end on every rank";
    case ReasonKind::kNoNoiseLegs:
      return "no noise leg in the reference";
    case ReasonKind::kBoundTooWide:
      return fmt::format("its bound of {} is too wide to mean anything",
                         FormatError(NumberOf(reason, 0)));
    case ReasonKind::kUncertain: {
      const std::string order = reason.detail.empty()
                                    ? ""
                                    : ", and has the same elements in another "
                                      "order";
      if (std::isinf(NumberOf(reason, 1))) {
        return fmt::format(
            "its digest is another one{}: how far it is off, digests do not "
            "tell; record both runs with --mode sketch or full",
            order);
      }
      return fmt::format(
          "by its sketch it is off by {} to {}{}, and its bound {} lies "
          "between; record both runs with --mode full",
          FormatError(NumberOf(reason, 0)), FormatError(NumberOf(reason, 1)),
          order, FormatError(NumberOf(reason, 2)));
    }
    case ReasonKind::kReplacedByGraft:
      return "replaced by the reference's";
    case ReasonKind::kAfterStep:
      return "after an optimizer step only copies are compared (the step is "
             "not replayed)";
    case ReasonKind::kStepUnknown:
      return fmt::format("its step is not replayed: {} is not known",
                         reason.detail);
    case ReasonKind::kStepNotRecorded:
      return fmt::format("its step is not replayed: {} is not recorded",
                         reason.detail);
    case ReasonKind::kStepNotHeld:
      return fmt::format(
          "its step is not replayed: {} {} no {} for what it updates",
          RankWords(reason.ranks), reason.ranks.size() == 1 ? "has" : "have",
          reason.detail);
    case ReasonKind::kReferenceStep:
      return "its step is not judged: the reference's own is not what its "
             "settings make it either";
    case ReasonKind::kBeforeStep:
      return "what a step starts from: used to replay it";
    case ReasonKind::kAfterGoodStep:
      return "as the next iteration finds it: its copies are compared, and the "
             "step on what it left at once";
    case ReasonKind::kOwnStatistic:
      return "a buffer that forwards changed, out of bounds, and nothing that "
             "is computed with it is: a statistic of a rank's own rows";
    case ReasonKind::kOwnState:
      return "state of an optimizer, which keeps what it likes";
    case ReasonKind::kUnequalStart:
      return "its iteration starts from other weights (a step was taken and "
             "weights were not grafted)";
    case ReasonKind::kNotOfTheRun:
      return "it is off there by more than the run itself can be, and the run "
             "is within bounds";
    case ReasonKind::kRowOfList:
      return "an item of a list: the other run's item was found by its values, "
             "bit for bit";
    case ReasonKind::kBatchUnknown:
      return "how it depends on the rows of a micro-batch is not known, and "
             "the runs "
             "have other micro-batches";
    case ReasonKind::kReducedUnknown:
      return "reduced by a function of the run's own, in a precision that is "
             "not known";
    case ReasonKind::kUnlikeDraws:
      return "computed with random numbers that a forward drew, others in each "
             "run";
    case ReasonKind::kOverflow:
      return fmt::format(
          "{} elements are not finite ({} in the reference), in a step that "
          "was skipped because of overflow",
          CountOf(reason, 0), CountOf(reason, 1));
    case ReasonKind::kNoRouting:
      return "which tokens its rows are is not known: " + reason.detail;
    case ReasonKind::kRoutedUpstream:
      return "tokens were routed otherwise upstream, within round-off, and its "
             "bound knows nothing of that";
    case ReasonKind::kRoutedRows:
      return reason.detail;
    case ReasonKind::kWrongRouting:
      return fmt::format(
          "{} of {} tokens were routed otherwise, {} of them by more than "
          "round-off explains",
          CountOf(reason, 1), CountOf(reason, 2), CountOf(reason, 0));
    case ReasonKind::kNotReplaced:
      return fmt::format(
          "{} {} of {} was not replaced: {}", ToString(reason.tensor.role),
          reason.tensor.arg,
          reason.tensor.fqn.empty() ? "the model" : reason.tensor.fqn,
          reason.detail);
    case ReasonKind::kOfOtherModels:
      return "models beside this one go into it, which no leg replaces";
    case ReasonKind::kNoGradients:
      return reason.detail.empty()
                 ? "no reduced gradients to recompute it from"
                 : fmt::format("the gradient of {} is not recorded",
                               reason.detail);
    case ReasonKind::kNotMaterialised:
      return "not materialised: " + reason.detail;
    case ReasonKind::kInsideOnePiece:
      return fmt::format(
          "not materialised: inside a module that the {} computes in one piece",
          reason.detail);
    case ReasonKind::kOneMoreStep:
      return "seen only by a run that took one more step";
    case ReasonKind::kOtherItems:
      return "the other run reads other data; the model's inputs were "
             "compared";
    case ReasonKind::kNotSelected:
      return "left out by --select";
    case ReasonKind::kNotObserved:
      return "not observed: " + reason.detail;
    case ReasonKind::kNotAlike:
      return "not the same on all ranks of the device mesh, and nothing says "
             "which parts they hold";
    case ReasonKind::kCleared:
      return "both runs clear this gradient without a step";
    case ReasonKind::kShapeDiffers:
      return fmt::format("its shape is [{}], the reference's [{}]",
                         fmt::join(reason.shape, ", "),
                         fmt::join(reason.other_shape, ", "));
    case ReasonKind::kElementsDiffer:
      return fmt::format("{} of {} elements of {} differ", CountOf(reason, 0),
                         CountOf(reason, 1), Info(reason.dtype).torch_name);
    case ReasonKind::kNotUpdated:
      return fmt::format(
          "the step left all {} elements as they were, of which the "
          "reference's step changed {}{}",
          CountOf(reason, 0), CountOf(reason, 1),
          reason.far ? " by 4 units in the last place or more" : "");
    case ReasonKind::kForeignPart:
      if (reason.tensor.role == Role::kData) {
        return fmt::format(
            "{} read {}; {}", RankWords(reason.ranks),
            reason.ranks != reason.owners
                ? fmt::format("the part of {}", RankWords(reason.owners))
                : "the same rows",
            kNoneAsOften);
      }
      return fmt::format(
          "{} held {}, where the reference has other values (they were "
          "replaced by the reference's)",
          RankWords(reason.ranks),
          reason.ranks != reason.owners
              ? fmt::format("the part of {}", RankWords(reason.owners))
              : "one and the same part");
    case ReasonKind::kStepDiffers:
      return fmt::format(
          "{} of {} elements are not what the step makes of what its rank "
          "recorded before it, by up to {} where rounding explains {}",
          CountOf(reason, 0), CountOf(reason, 1),
          FormatError(NumberOf(reason, 0)), FormatError(NumberOf(reason, 1)));
    case ReasonKind::kReportedNorm:
      return fmt::format(
          "the optimizer reports {:.9g}; the norm of the reduced gradients is "
          "{:.9g}{}",
          NumberOf(reason, 0), NumberOf(reason, 1), NormTermWords(reason));
  }
  return "";
}

std::string ScaleWords(Origin origin) {
  switch (origin) {
    case Origin::kNoBound:
      return "no bound";
    case Origin::kNoise:
      return "noise";
    case Origin::kFloor:
      return "floor";
    case Origin::kRepeat:
      return "the reference's replay differs by";
    case Origin::kReferenceFp32:
      return "reference against its fp32 leg";
    case Origin::kReferenceRounds:
      return "reference against its fp32 leg, of both sides";
    case Origin::kLargestOfMany:
      return "largest of many errors";
    case Origin::kRandomFactor:
      return "independent errors";
    case Origin::kEqual:
      return "must be equal";
    case Origin::kPrimitive:
      return "the framework's own norm of the same gradients";
    case Origin::kStepRounding:
      return "the rounding of the step's own arithmetic";
    case Origin::kLongSum:
      return "sums of more tokens than the reference's may lose";
  }
  return "";
}

std::string StatisticWords(const Test& test) {
  switch (test.statistic) {
    case Statistic::kNorm:
      return "";
    case Statistic::kProjection:
      return "common factor: ";
    case Statistic::kElement:
      return "largest error of an element: ";
    case Statistic::kBlock:
      return "largest error of a block: ";
    case Statistic::kPiece:
      return fmt::format("what {} holds: ", RankWords(test.ranks));
    case Statistic::kMismatches:
      return "elements that differ: ";
    case Statistic::kRouting:
      return "scores between which the choice fell otherwise: ";
    case Statistic::kRepeat:
      return "a replay of the candidate differs: ";
    case Statistic::kStep:
      return "the step made again: ";
  }
  return "";
}

std::string Examples(const std::vector<std::string>& names, size_t from,
                     int64_t count) {
  std::string out;
  for (size_t i = from; i < names.size(); ++i) {
    if (!out.empty()) out += ", ";
    out += names[i].empty() ? "the model" : names[i];
  }
  if (count > static_cast<int64_t>(names.size() - from)) out += ", ...";
  return out;
}

std::string Counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

double NumberOf(const RunNote& note, size_t i) {
  return i < note.numbers.size() ? note.numbers[i] : 0;
}

std::string NameOf(const RunNote& note, size_t i) {
  return i < note.names.size() ? note.names[i] : "";
}

std::string Sentence(const RunNote& note) {
  switch (note.kind) {
    case NoteKind::kUnsupported:
      return fmt::format("{} is not supported: {}", NameOf(note, 0),
                         note.reason);
    case NoteKind::kComputation:
      return fmt::format(
          "the runs compute different functions: {} is {} in the reference and "
          "{} in the candidate",
          NameOf(note, 0), NameOf(note, 1), NameOf(note, 2));
    case NoteKind::kDropout:
      return note.reason;
    case NoteKind::kUnlikeDraws:
      return fmt::format(
          "{} draw{} random numbers in the forward, others in each run ({}): "
          "{} "
          "computed with them cannot be compared",
          Counted(note.count, "module"), note.count == 1 ? "s" : "",
          Examples(note.names, 0, note.count),
          Counted(static_cast<int64_t>(NumberOf(note, 0)), "tensor"));
    case NoteKind::kOverflow:
      return fmt::format(
          "iteration {}: under the loss scale, {} beyond what fp16 holds, at "
          "other elements in each run or in one alone, and the step was "
          "skipped (first {}: {:.0f} elements, {:.0f} in the reference)",
          NumberOf(note, 0),
          note.count == 1 ? "a gradient goes"
                          : fmt::format("{} gradients go", note.count),
          NameOf(note, 0), NumberOf(note, 1), NumberOf(note, 2));
    case NoteKind::kNotGrafted:
      return fmt::format("{} kept the candidate's own values ({}): {}",
                         Counted(note.count, "tensor"),
                         Examples(note.names, 0, note.count), note.reason);
    case NoteKind::kDamage:
      return note.count == 1 ? note.reason
                             : fmt::format("{}; {} more like it", note.reason,
                                           Counted(note.count - 1, "tensor"));
    case NoteKind::kDefect:
      return note.reason;
    case NoteKind::kStopped:
      return fmt::format("{}: capture stopped: {}", RankWords(note.ranks),
                         note.reason);
    case NoteKind::kNotObserved:
      return fmt::format(
          "{} not {}observed{}{}{}: {}", Counted(note.count, "module"),
          NumberOf(note, 0) > 0 ? "wholly " : "",
          NameOf(note, 0).empty() ? "" : ", class ", NameOf(note, 0),
          note.names.size() > 1
              ? fmt::format(" ({})", Examples(note.names, 1, note.count))
              : "",
          note.reason);
    case NoteKind::kCompiled:
      return fmt::format("{} compiled ({}): their interior is not observed",
                         Counted(note.count, "region"),
                         Examples(note.names, 0, note.count));
    case NoteKind::kNotRecorded:
      return fmt::format("{} not recorded ({}): {}",
                         Counted(note.count, "tensor"),
                         Examples(note.names, 0, note.count), note.reason);
    case NoteKind::kNoEvidence:
      return fmt::format("no {} can be judged ({} of them){}{}",
                         NameOf(note, 0), note.count,
                         note.reason.empty() ? "" : ": ", note.reason);
    case NoteKind::kZeroEvidence:
      return fmt::format(
          "every {} is zero or not finite in the reference ({} of them): "
          "nothing "
          "wrong would show in them",
          NameOf(note, 0), note.count);
    case NoteKind::kLegSkipped:
      return fmt::format("{} {} skipped: {}",
                         note.names.size() == 1 ? "leg" : "legs",
                         fmt::join(note.names, ", "), note.reason);
    case NoteKind::kLegNotSealed:
      return fmt::format("{} {} not used: a rank did not end {}",
                         note.names.size() == 1 ? "leg" : "legs",
                         fmt::join(note.names, ", "),
                         note.names.size() == 1 ? "it" : "them");
    case NoteKind::kLegNotUsed:
      return fmt::format("leg {} of the candidate is not used: {}",
                         NameOf(note, 0), note.reason);
    case NoteKind::kPrecisions:
      return fmt::format(
          "the reference computes in {} and the candidate in {}: their own "
          "runs are not compared, only fp32 legs",
          NameOf(note, 0), NameOf(note, 1));
    case NoteKind::kNoFp32Leg:
      return fmt::format(
          "no fp32 leg of the {}: bugs that hide in rounding noise are not "
          "seen",
          NameOf(note, 0));
    case NoteKind::kNotIsolated:
      return fmt::format("{} could not be isolated ({}): {}",
                         Counted(note.count, "module"),
                         Examples(note.names, 0, note.count), note.reason);
    case NoteKind::kUnfinishedSums:
      return fmt::format(
          "{} over micro-batches {} left out ({}{}): {} did not complete them",
          Counted(note.count, "sum"), note.count == 1 ? "is" : "are",
          NameOf(note, 0), note.count > 1 ? ", ..." : "",
          RankWords(note.ranks));
    case NoteKind::kGraftDiffers:
      return fmt::format(
          "iteration {}: its own {} differed from the reference's in up to {} "
          "of {} tensors of a rank ({}) and were replaced ({})",
          NumberOf(note, 0), NameOf(note, 0), NumberOf(note, 1),
          NumberOf(note, 2), RankWords(note.ranks), Examples(note.names, 1, 0));
    case NoteKind::kModulesBeside:
      return fmt::format(
          "{} beside the model {} not compared: {} of it or of a part of it "
          "({}), as an average of the weights or a teacher",
          Counted(note.count, "module"), note.count == 1 ? "is" : "are",
          note.count == 1 ? "a copy" : "copies",
          Examples(note.names, 0, static_cast<int64_t>(note.names.size())));
    case NoteKind::kGraftedInputs:
      return "there is no data iterator to replace items of: the model's own "
             "inputs are replaced by the reference's";
    case NoteKind::kDropoutOff:
      return note.reason;
    case NoteKind::kNotRepeatable:
      return fmt::format(
          "{} of the candidate {} not reproduced bit by bit by a replay (by up "
          "to {}), the reference's {}; bounds do not include that",
          Counted(note.count, "tensor"), note.count == 1 ? "is" : "are",
          FormatError(NumberOf(note, 0)), note.count == 1 ? "is" : "are");
    case NoteKind::kStateLeft:
      return fmt::format("leg {} left state behind: {}", NameOf(note, 0),
                         note.reason);
    case NoteKind::kAttribute:
      return fmt::format("{} ({}): {}", Counted(note.count, "parameter"),
                         Examples(note.names, 0, note.count), note.reason);
    case NoteKind::kRowsReordered:
      return fmt::format(
          "iteration{} {}: the candidate sees the reference's rows in another "
          "order; they were matched by content",
          note.numbers.size() == 1 ? "" : "s", fmt::join(note.numbers, ", "));
    case NoteKind::kReductionHook:
      return note.reason.empty()
                 ? fmt::format(
                       "gradients are reduced by a communication hook, {}, "
                       "which sends {}: reduced gradients are judged with that "
                       "rounding",
                       NameOf(note, 0), NameOf(note, 1))
                 : fmt::format(
                       "gradients are reduced by a communication hook, {}, in "
                       "a precision that is not known ({}): reduced gradients "
                       "are not compared with the reference's",
                       NameOf(note, 0), note.reason);
    case NoteKind::kLossUnit:
      return fmt::format(
          "a convention of scaling: the candidate's loss and its gradients "
          "before the reduction are {:.6g} x the reference's, and what is "
          "stepped is not; they are compared without that factor ({} {})",
          NumberOf(note, 0),
          note.numbers.size() == 2 ? "iteration" : "iterations",
          fmt::join(note.numbers.begin() + 1, note.numbers.end(), ", "));
    case NoteKind::kIsolation:
      return note.reason;
    case NoteKind::kJoined:
      return fmt::format(
          "{} more faulty place{} the explanation of another one, with which "
          "they are counted",
          note.count, note.count == 1 ? " has" : "s have");
    case NoteKind::kSkippedStep:
    case NoteKind::kClearedGradients:
      return fmt::format("iteration {}: the optimizer's step was skipped ({})",
                         NumberOf(note, 0), note.reason);
    case NoteKind::kPaddingGradient: {
      const bool own = NumberOf(note, 0) >= NumberOf(note, 1);
      return fmt::format(
          "padding that the {} alone has takes part in what is computed: {} "
          "has "
          "a gradient there, {:.2g} x that of the data{}; mask it in "
          "attention, "
          "in means and statistics, and in the loss",
          own ? "candidate" : "reference", NameOf(note, 0),
          NumberOf(note, own ? 0 : 1),
          note.count > 1
              ? fmt::format(", and {} more", Counted(note.count - 1, "tensor"))
              : "");
    }
    case NoteKind::kZeroStep:
      return fmt::format(
          "iteration {}: the learning rate is 0, so the step moves nothing",
          NumberOf(note, 0));
    case NoteKind::kMalformed:
      return fmt::format("{} of {} unreadable", Counted(note.count, "note"),
                         NameOf(note, 0));
    case NoteKind::kRowsFed:
    case NoteKind::kNotice:
      return note.ranks.empty()
                 ? note.reason
                 : fmt::format("{}: {}", RankWords(note.ranks), note.reason);
  }
  return note.reason;
}

}  // namespace

std::string ReasonWords(const Reason& reason) {
  return WithRows(Words(reason), reason);
}

std::string ContradictionWords(const Contradiction& contradiction) {
  switch (contradiction.kind) {
    case ContradictionKind::kCleanGradients:
      return fmt::format(
          "all {} reduced gradients of its iteration are within bounds, which "
          "other input data would change",
          contradiction.count);
    case ContradictionKind::kCleanAlone:
      return fmt::format(
          "isolation finds it clean: on the reference's values its headroom is "
          "{:.2g}, end to end {:.3g}",
          contradiction.value, contradiction.other);
    case ContradictionKind::kWideBound:
      return fmt::format("its bound of {} is too wide to mean anything",
                         FormatError(contradiction.value));
  }
  return "";
}

std::string ContestWords(const Culprit& culprit) {
  std::vector<std::string> words;
  for (const Contradiction& one : culprit.contradictions) {
    words.push_back(ContradictionWords(one));
  }
  const std::string name =
      culprit.tensor.fqn.empty() ? "the model" : culprit.tensor.fqn;
  return fmt::format(
      "evidence contradicts itself: {} {}{}{}, iteration {}, is "
      "out of bounds, but {}",
      name, ToString(culprit.tensor.role),
      culprit.tensor.arg.empty() ? "" : " ", culprit.tensor.arg,
      culprit.iteration, fmt::join(words, "; and "));
}

std::string OriginWords(const LegJudgement& leg) {
  const Test* test = leg.deciding();
  if (test == nullptr) {
    return leg.stats.nonfinite_cand > 0 ? "must be finite"
                                        : "no noise leg in the reference";
  }
  const Expectation& expected = test->expected;
  std::string out = StatisticWords(*test);
  switch (expected.origin) {
    case Origin::kEqual:
      return out + "must be equal";
    case Origin::kPrimitive:
      return "the framework's own norm of the same gradients, and its rounding";
    case Origin::kStepRounding:
      return out + "the rounding of its own arithmetic";
    default:
      break;
  }
  if (test->statistic == Statistic::kMismatches) {
    return out + fmt::format("{:.3g} flip in a noise leg ({} of them)",
                             test->noise, expected.noise_legs);
  }
  out += fmt::format("{} {:.1e}", ScaleWords(expected.origin), expected.scale);
  if (expected.factor != 1) out += fmt::format(" x {:.3g}", expected.factor);
  out += fmt::format(" ({}", Counted(expected.noise_legs, "noise leg"));
  if (expected.one_module_deep) out += " one module deep";
  if (expected.end_to_end_for_want) {
    out += " end to end, for want of noise one module deep";
  }
  if (expected.fp32_leg) out += " + fp32 leg";
  if (expected.vector_gradient) out += ", 1-D gradient";
  if (expected.lookup_gradient) out += ", gradient of a table";
  if (expected.growth > 1) {
    out += expected.summed_ranks > 1
               ? fmt::format(", sums over {} ranks", expected.summed_ranks)
           : expected.summed_terms > 1
               ? fmt::format(", sums of {} terms", expected.summed_terms)
               : "";
  }
  if (expected.zero_sum) {
    out += fmt::format(
        ", zero but for rounding: its terms come to {:.1e} times as much",
        expected.cancelled);
  }
  return out + ")";
}

std::string NoteWords(const RunNote& note) {
  std::string out = Sentence(note);
  if (!note.folder.empty()) out = note.folder + ": " + out;
  if (!note.way_out.empty()) out += " (" + note.way_out + ")";
  return out;
}

}  // namespace ttrace
