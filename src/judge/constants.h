// Every constant of the judgement, with its derivation. "Empirical" means
// measured on clean runs and re-measured by `make matrix`; see
// docs/tolerance.md.

#ifndef TTRACE_SRC_JUDGE_CONSTANTS_H_
#define TTRACE_SRC_JUDGE_CONSTANTS_H_

namespace ttrace {

// The one multiplier of noise bounds. A clean candidate's error and a noise
// leg's error are two draws of the same size; their ratio concentrates at 1 for
// tensors of many elements. Empirical: clean runs reach 0.9 (dense models), so
// 2 leaves as much again.
inline constexpr double kNoiseFactor = 2;

// How often a clean run may be flagged by chance of its few noise samples,
// unless the user says otherwise. Divided over the tests that are made.
inline constexpr double kRunRisk = 1e-3;

// Floor of a noise scale, in unit round-offs: a tensor that noise legs leave
// untouched (a gather, a loss gradient) may still be rounded once more or once
// less by an equivalent program. One rounding has a relative rms of
// u / sqrt(3) ~ 0.58 u on a worst-case tensor, about half of it on average over
// mantissas; a quarter of u, doubled by kNoiseFactor, admits one and not two.
inline constexpr double kFloorRoundoffs = 0.25;

// A bound above this says nothing: a tensor that lost a fifth of its norm would
// pass. Such a tensor is "not checkable". Empirical cut-off.
inline constexpr double kWidestBound = 0.2;

// Limit for gradients in low precision that are summed over tokens term by term
// (one-dimensional parameters, tables) when there is no fp32 leg: noise on
// values does not stir up the rounding inside these sums. Empirical (clean
// maximum 6.8).
inline constexpr double kTokenSumFactor = 8;

// What scalars that multiply whole tensors (a loss scale, one over a number of
// tokens or ranks) may differ by, in unit round-offs: two roundings of a factor
// in either run, each of at most one.
inline constexpr double kScalarRoundoffs = 4;

// From here to 1, headroom is "suspect": printed, never a culprit.
inline constexpr double kSuspectHeadroom = 0.5;

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_CONSTANTS_H_
