// The tolerance rule: from measured errors of one tensor to a LegJudgement.
//
// Two estimates must both convict (docs/tolerance.md, "Rule F"):
//   B  err(C, R)  against the rms of err(P_s, R) over the noise legs P_s;
//   D  err(C, H)  against max(err(R, H), that rms), H the fp32 leg.
// D knows rounding that noise on values cannot stir up (sums over tokens), B
// holds where two low-precision runs landed far apart by chance.
//
// Source: TTrace (arXiv 2506.09280), section on tolerance estimation, extended
// from noise on the embedding to noise on every leaf and by the comparison with
// a higher precision.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_JUDGE_RULE_H_
#define TTRACE_SRC_JUDGE_RULE_H_

#include <optional>
#include <string>
#include <vector>

#include "src/judge/judgement.h"

namespace ttrace {

struct LegErrors {
  std::string leg;
  ErrorStats stats;           // candidate against the reference
  std::vector<double> noise;  // rel_err of each noise leg
  double repeat_err = 0;      // rel_err of a replayed leg: non-determinism
  // Against the reference's fp32 leg. Both or neither, but that an isolated leg
  // has the reference's alone.
  std::optional<double> candidate_hp;
  std::optional<double> reference_hp;
  double unit_roundoff = 0;      // of the precision this leg computes in
  bool vector_gradient = false;  // one-dimensional parameter gradient
  // Terms of the longest sum that the value can hang on (an inner dimension, a
  // number of tokens). Matters where sums are made in the leg's own precision.
  int64_t longest_sum = 1;
  // Ranks that a value can be summed over in either run. Matters where the
  // terms are of low precision: each is rounded, and so is each partial sum.
  int64_t reference_ranks = 1;
  int64_t candidate_ranks = 1;
  // Said of the noise legs in the provenance; empty: the usual ones.
  std::string noise_words;
};

LegJudgement JudgeLeg(const LegErrors& errors);

// By how much sums in the leg's own precision exceed one rounding of their
// result: those of `longest_sum` terms in fp32 legs, those over ranks in legs
// of low precision. Noise legs do not show it, so noise and floors are
// multiplied by it.
double SummationGrowth(const LegErrors& errors);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_RULE_H_
