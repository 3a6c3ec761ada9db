// How much larger than the noise a clean error may be when there are few
// elements and few noise legs.
//
// A tensor of n independent errors and s noise legs: (error / rms noise)^2 is
// F(n, s n)-distributed. For n in the hundreds it is 1; for a loss (n = 1) and
// three legs it exceeds 4 one time in seven. The bound must follow.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_JUDGE_SMALL_SAMPLE_H_
#define TTRACE_SRC_JUDGE_SMALL_SAMPLE_H_

#include <cstdint>

namespace ttrace {

// P(F <= x) of the F distribution with d1 and d2 degrees of freedom.
// REQUIRES: x >= 0, d1 > 0, d2 > 0.
double FDistribution(double x, double d1, double d2);

// The x that F(d1, d2) exceeds with probability `risk`.
// REQUIRES: 0 < risk < 1.
double FUpperQuantile(double risk, double d1, double d2);

// max(kNoiseFactor, sqrt of the upper `risk` quantile of F(n, s n)) for n
// independent elements and s legs.
// REQUIRES: legs >= 1, 0 < risk < 1.
double NoiseFactor(double elements, int legs, double risk);

// The upper `risk` quantile of |t| of Student's law with `degrees` of freedom:
// one number against the rms of as many samples of it.
// REQUIRES: degrees >= 1, 0 < risk < 1.
double SampleFactor(int degrees, double risk);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_SMALL_SAMPLE_H_
