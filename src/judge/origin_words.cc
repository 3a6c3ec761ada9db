#include "src/judge/origin_words.h"

#include <fmt/format.h>

#include "src/base/count_words.h"
#include "src/base/rank_words.h"

namespace ttrace {
namespace {

std::string ScaleWords(Origin origin) {
  switch (origin) {
    case Origin::kNoBound:
      return "no bound";
    case Origin::kNoise:
      return "noise";
    case Origin::kFloor:
      return "floor";
    case Origin::kRepeat:
      return "the reference's own rerun differs by";
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
      return "a rerun of the candidate differs: ";
    case Statistic::kStep:
      return "the step made again: ";
  }
  return "";
}

}  // namespace

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
