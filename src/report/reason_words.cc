#include "src/report/reason_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "src/base/count_words.h"
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

}  // namespace ttrace
