#include "src/judge/reason_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

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

std::string MissingWords(const Reason& reason) {
  if (CountOf(reason, 0) + CountOf(reason, 1) + CountOf(reason, 3) == 0) {
    return fmt::format(
        "neither run has {} of its elements, as of what a part of the "
        "micro-batches or ranks made",
        CountOf(reason, 2));
  }
  return fmt::format(
      "{} of its elements are missing in the candidate, {} in the reference, "
      "{} in both, {} lie in overlapping pieces",
      CountOf(reason, 0), CountOf(reason, 1), CountOf(reason, 2),
      CountOf(reason, 3));
}

std::string BoundWords(const Reason& reason) {
  return fmt::format("its bound of {} is too wide to mean anything",
                     FormatError(NumberOf(reason, 0)));
}

std::string UncertainWords(const Reason& reason) {
  const char* order = reason.detail.empty()
                          ? ""
                          : ", and has the same elements in another order";
  if (std::isinf(NumberOf(reason, 1))) {
    return fmt::format(
        "its digest is another one{}: how far it is off, digests do not tell; "
        "record both runs with --mode sketch or full, or ask with --bitwise "
        "whether they are the same",
        order);
  }
  return fmt::format(
      "by its sketch it is off by {} to {}{}, and its bound {} lies between; "
      "record both runs with --mode full",
      FormatError(NumberOf(reason, 0)), FormatError(NumberOf(reason, 1)), order,
      FormatError(NumberOf(reason, 2)));
}

// How many elements differ, no digest says.
std::string DigestWords(const Reason& reason) {
  std::string out =
      CountOf(reason, 0) > 0
          ? "its digest is that of the same elements in another order"
          : "its digest is another one";
  if (!reason.ranks.empty()) out += " on " + RankWords(reason.ranks);
  return out;
}

std::string ReferenceCopiesWords(const Reason& reason) {
  return fmt::format("its copies on {} differ in the reference",
                     RankWords(reason.ranks));
}

std::string NotHeldWords(const Reason& reason) {
  return fmt::format(
      "its step is not made again: {} {} no {} for what it updates",
      RankWords(reason.ranks), reason.ranks.size() == 1 ? "has" : "have",
      reason.detail);
}

std::string OverflowWords(const Reason& reason) {
  return fmt::format(
      "{} elements are not finite ({} in the reference), in a step that was "
      "skipped because of overflow",
      CountOf(reason, 0), CountOf(reason, 1));
}

std::string RoutingWords(const Reason& reason) {
  return fmt::format(
      "{} of {} tokens were routed otherwise, {} of them by more than "
      "round-off "
      "explains",
      CountOf(reason, 1), CountOf(reason, 2), CountOf(reason, 0));
}

std::string NotReplacedWords(const Reason& reason) {
  const TensorId& id = reason.tensor;
  return fmt::format("{} {} of {} was not replaced: {}", ToString(id.role),
                     id.arg, id.fqn.empty() ? "the model" : id.fqn,
                     reason.detail);
}

std::string NoGradientsWords(const Reason& reason) {
  return reason.detail.empty()
             ? "no reduced gradients to recompute it from"
             : fmt::format("the gradient of {} is not recorded", reason.detail);
}

std::string ShapeWords(const Reason& reason) {
  return fmt::format("its shape is [{}], the reference's [{}]",
                     fmt::join(reason.shape, ", "),
                     fmt::join(reason.other_shape, ", "));
}

std::string ElementsWords(const Reason& reason) {
  return fmt::format("{} of {} elements of {} differ", CountOf(reason, 0),
                     CountOf(reason, 1), Info(reason.dtype).torch_name);
}

std::string NotUpdatedWords(const Reason& reason) {
  return fmt::format(
      "the step left all {} elements as they were, of which the reference's "
      "step changed {}{}",
      CountOf(reason, 0), CountOf(reason, 1),
      reason.far ? " by 4 units in the last place or more" : "");
}

std::string ForeignPartWords(const Reason& reason) {
  const bool others = reason.ranks != reason.owners;
  const std::string part =
      fmt::format("the part of {}", RankWords(reason.owners));
  if (reason.tensor.role == Role::kData) {
    return fmt::format("{} read {}; {}", RankWords(reason.ranks),
                       others ? part : "the same rows", kNoneAsOften);
  }
  return fmt::format(
      "{} held {}, where the reference has other values (they were replaced by "
      "the reference's)",
      RankWords(reason.ranks), others ? part : "one and the same part");
}

std::string StepWords(const Reason& reason) {
  return fmt::format(
      "{} of {} elements are not what the step makes of what its rank recorded "
      "before it, by up to {} where rounding explains {}",
      CountOf(reason, 0), CountOf(reason, 1), FormatError(NumberOf(reason, 0)),
      FormatError(NumberOf(reason, 1)));
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

std::string NormWords(const Reason& reason) {
  return fmt::format(
      "the optimizer reports {:.9g}; the norm of the reduced gradients is "
      "{:.9g}{}",
      NumberOf(reason, 0), NumberOf(reason, 1), NormTermWords(reason));
}

// How a kind of reason is said: `text`, with the detail where it has {}, or
// what `make` makes.
struct Clause {
  ReasonKind kind;
  const char* text;
  std::string (*make)(const Reason&);

  constexpr Clause(ReasonKind of, const char* words)
      : kind(of), text(words), make(nullptr) {}
  constexpr Clause(ReasonKind of, std::string (*words)(const Reason&))
      : kind(of), text(nullptr), make(words) {}
};

// In the order of the enumeration.
constexpr std::array<Clause, kReasonKinds> kClauses = {{
    {ReasonKind::kNone, ""},
    {ReasonKind::kNotInReference, "the reference has no such tensor"},
    {ReasonKind::kNotInCandidate, "the candidate has no such tensor"},
    {ReasonKind::kNoCommonLeg, "no leg of both sides has it"},
    {ReasonKind::kNotComparable, "{}"},
    {ReasonKind::kElementsMissing, MissingWords},
    {ReasonKind::kIterationCut, "its iteration did not end on every rank"},
    {ReasonKind::kNoNoiseLegs, "no noise leg in the reference"},
    {ReasonKind::kBoundTooWide, BoundWords},
    {ReasonKind::kUncertain, UncertainWords},
    {ReasonKind::kReplacedByGraft, "replaced by the reference's"},
    {ReasonKind::kAfterStep,
     "after an optimizer step only copies are compared (the step is not made "
     "again)"},
    {ReasonKind::kStepUnknown, "its step is not made again: {} is not known"},
    {ReasonKind::kStepNotRecorded,
     "its step is not made again: {} is not recorded"},
    {ReasonKind::kStepNotHeld, NotHeldWords},
    {ReasonKind::kReferenceStep,
     "its step is not judged: the reference's own is not what its settings "
     "make it either"},
    {ReasonKind::kUnequalStart,
     "its iteration starts from other weights (a step was taken and weights "
     "were not grafted)"},
    {ReasonKind::kNotReplaced, NotReplacedWords},
    {ReasonKind::kNoGradients, NoGradientsWords},
    {ReasonKind::kOfOtherModels,
     "models beside this one go into it, which no leg replaces"},
    {ReasonKind::kNotOfTheRun,
     "it is off there by more than the run itself can be, and the run is "
     "within bounds"},
    {ReasonKind::kRowOfList,
     "an item of a list: the other run's item was found by its values, bit for "
     "bit"},
    {ReasonKind::kBatchUnknown,
     "how it depends on the rows of a micro-batch is not known, and the runs "
     "have other micro-batches"},
    {ReasonKind::kReducedUnknown,
     "reduced by a function of the run's own, in a precision that is not "
     "known"},
    {ReasonKind::kUnlikeDraws,
     "computed with random numbers that a forward drew, others in each run"},
    {ReasonKind::kDamaged, "{}"},
    {ReasonKind::kNoRouting, "which tokens its rows are is not known: {}"},
    {ReasonKind::kOverflow, OverflowWords},
    {ReasonKind::kRoutedUpstream,
     "tokens were routed otherwise upstream, within round-off, and its bound "
     "knows nothing of that"},
    {ReasonKind::kOwnStatistic,
     "a buffer that forwards changed, out of bounds, and nothing that is "
     "computed with it is: a statistic of a rank's own rows"},
    {ReasonKind::kBeforeStep, "what a step starts from: used to make it again"},
    {ReasonKind::kAfterGoodStep,
     "as the next iteration finds it: its copies are compared, and the step on "
     "what it left at once"},
    {ReasonKind::kOwnState, "state of an optimizer, which keeps what it likes"},
    {ReasonKind::kNotMaterialised, "not materialised: {}"},
    {ReasonKind::kInsideOnePiece,
     "not materialised: inside a module that the {} computes in one piece"},
    {ReasonKind::kOneMoreStep, "seen only by a run that took one more step"},
    {ReasonKind::kNoSuchIteration, "of an iteration that is missing in the {}"},
    {ReasonKind::kOtherItems,
     "the other run reads other data; the model's inputs were compared"},
    {ReasonKind::kNotSelected, "left out by --select"},
    {ReasonKind::kNotObserved, "not observed: {}"},
    {ReasonKind::kNotAlike,
     "not the same on all ranks of the device mesh, and nothing says which "
     "parts they hold"},
    {ReasonKind::kCleared, "both runs clear this gradient without a step"},
    {ReasonKind::kClearedPass,
     "of an iteration in which both runs clear gradients: at which scale, no "
     "step shows, and they reach no weight"},
    {ReasonKind::kShapeDiffers, ShapeWords},
    {ReasonKind::kElementsDiffer, ElementsWords},
    {ReasonKind::kOtherDigest, DigestWords},
    {ReasonKind::kOtherDType, "its dtype is {}"},
    {ReasonKind::kOtherPieces,
     "its pieces hold other bits than the reference's, which make the same "
     "numbers together"},
    {ReasonKind::kDigestsOfTerms,
     "it is a sum or has a factor, and its parts are others in the two runs: "
     "digests tell nothing of what they make together (record both without "
     "--bitwise)"},
    {ReasonKind::kReferenceCopies, ReferenceCopiesWords},
    {ReasonKind::kNotUpdated, NotUpdatedWords},
    {ReasonKind::kForeignPart, ForeignPartWords},
    {ReasonKind::kReportedNorm, NormWords},
    {ReasonKind::kStepDiffers, StepWords},
    {ReasonKind::kRoutedRows, "{}"},
    {ReasonKind::kWrongRouting, RoutingWords},
}};

constexpr bool FollowTheEnumeration() {
  for (size_t i = 0; i < kClauses.size(); ++i) {
    if (kClauses[i].kind != static_cast<ReasonKind>(i)) return false;
  }
  return true;
}
static_assert(FollowTheEnumeration());

// Why a side has no such tensor is known of some.
bool MayHaveDetail(ReasonKind kind) {
  return kind == ReasonKind::kNotInReference ||
         kind == ReasonKind::kNotInCandidate;
}

std::string KindWords(const Reason& reason) {
  const Clause& clause = kClauses[static_cast<size_t>(reason.kind)];
  if (clause.make != nullptr) return clause.make(reason);
  std::string out = clause.text;
  if (const size_t at = out.find("{}"); at != std::string::npos) {
    out.replace(at, 2, reason.detail);
  } else if (MayHaveDetail(reason.kind) && !reason.detail.empty()) {
    out += ": " + reason.detail;
  }
  return out;
}

// Which rows are read otherwise; "" if none are.
std::string RowWords(const Reason& reason) {
  if (!reason.repeating.empty()) {
    return fmt::format("{} are fed the same rows; {}",
                       RankWords(reason.repeating), kNoneAsOften);
  }
  if (reason.foreign_rows.empty()) return "";
  constexpr size_t kShown = 16;
  const auto begin = reason.foreign_rows.begin();
  const size_t shown = std::min(kShown, reason.foreign_rows.size());
  return fmt::format(
      "rows {}{} of the global batch are not the reference's",
      fmt::join(begin, begin + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < reason.foreign_rows.size() ? ", ..." : "");
}

}  // namespace

std::string ReasonWords(const Reason& reason) {
  const std::string kind = KindWords(reason);
  const std::string rows = RowWords(reason);
  return kind + (kind.empty() || rows.empty() ? "" : "; ") + rows;
}

}  // namespace ttrace
