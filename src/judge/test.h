// Test: one statistic of one tensor in one leg, with what it may be if nothing
// is wrong and where that is from. Verdicts are made of tests alone.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_JUDGE_TEST_H_
#define TTRACE_SRC_JUDGE_TEST_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// What is measured of a difference. A norm sees what is wrong everywhere, the
// maxima what is wrong in few elements, the projection a common factor, and a
// piece what one rank holds.
enum class Statistic : uint8_t {
  kNorm,        // ||cand - ref|| / ||ref||
  kProjection,  // |<cand, ref> / <ref, ref> - 1|
  kElement,     // largest |cand - ref| / (|ref| + rms of ref) of an element
  kBlock,       // largest norm of a block of elements, over that of ref
  kPiece,       // the norm of what one rank holds, over ref's of the same part
  kMismatches,  // elements that differ, of values without a tolerance
  kRouting,     // largest FlippedToken::margin of a routing map
  kRepeat,      // a replay of the candidate against its real leg
  kStep,        // an element after the step, against the step made again
};
std::string_view ToString(Statistic statistic);

// Where an expectation is from.
enum class Origin : uint8_t {
  kNoBound,          // the reference has no noise leg
  kNoise,            // what noise legs show of the same statistic
  kFloor,            // one rounding more or less
  kRepeat,           // what the reference's own replay differs by
  kReferenceFp32,    // what the reference differs from its fp32 leg by
  kReferenceRounds,  // the same, for two sides that round one exact sum
  kLargestOfMany,    // the largest of so many normal errors of the noise's rms
  kRandomFactor,     // what independent errors of elements add up to
  kEqual,            // must be equal
  kPrimitive,        // what the framework's own primitive gives
  kStepRounding,     // what the step's own arithmetic may round
  kLongSum,          // what a longer sum than the reference's may lose
};
std::string_view ToString(Origin origin);

struct Expectation {
  Origin origin = Origin::kNoBound;
  double scale = 0;   // the statistic's size if nothing is wrong
  double factor = 0;  // bound = factor * scale
  int noise_legs = 0;
  bool fp32_leg = false;         // a second estimate had to agree
  bool vector_gradient = false;  // the rule for one-dimensional gradients
  bool lookup_gradient = false;  // ... and for those of tables
  double growth = 1;             // by sums, in `scale`; see rounding.h
  int64_t summed_ranks = 1;      // what it is made of, in low precision
  int64_t summed_terms = 1;      // and in fp32
  // How much larger independent terms would make the sum that it is, and
  // whether nothing is left of these but rounding.
  double cancelled = 1;
  bool zero_sum = false;
  bool one_module_deep = false;  // of the noise
  bool end_to_end_for_want = false;
};

struct Test {
  Statistic statistic = Statistic::kNorm;
  // Ranks that hold the piece, and its micro-batch; empty and -1: the whole.
  std::vector<int> ranks;
  int micro_batch = -1;
  double value = 0;
  double bound = 0;
  double headroom = 0;  // value / bound, or less where a second estimate agrees
  Expectation expected;
  double noise = 0;  // what the noise legs show of it: rms, or largest
  // Against the reference's fp32 leg: the candidate's and the reference's own.
  // NaN where there is none.
  double value_fp32 = std::numeric_limits<double>::quiet_NaN();
  double reference_fp32 = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_TEST_H_
