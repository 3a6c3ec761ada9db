#include "src/judge/mismatches.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ttrace {

int64_t AllowedFlips(int64_t flips, int legs, double risk) {
  if (flips <= 0) return 0;
  const double r = static_cast<double>(flips) + 0.5;
  const double s = std::max(1, legs);
  const double p = s / (s + 1);
  // P(k) = Gamma(k + r) / (k! Gamma(r)) p^r (1 - p)^k, summed until what is
  // left is below the risk. The mean is r / s, so this ends soon.
  double log_term = r * std::log(p);
  double below = std::exp(log_term);
  const auto mean = static_cast<int64_t>(r / s);
  int64_t k = 0;
  for (; 1 - below > risk && k < 1000 * (mean + 10); ++k) {
    const auto n = static_cast<double>(k);
    log_term += std::log((n + r) / (n + 1) * (1 - p));
    below += std::exp(log_term);
    // Beyond the mean terms fall by at least this ratio: the tail is known
    // before sums of doubles stop to resolve it.
    const double ratio = (n + 1 + r) / (n + 2) * (1 - p);
    if (k > mean && ratio < 1 &&
        std::exp(log_term) * ratio / (1 - ratio) <= risk) {
      return k + 1;
    }
  }
  return k;
}

LegJudgement JudgeEquality(const Leg& name, const LegFacts& facts,
                           bool computed, double risk) {
  LegJudgement out;
  out.leg = name;
  out.stats = facts.candidate.total;
  out.err = out.stats.rel_err();
  int64_t flips = 0;
  if (computed) {
    for (const PairFacts& leg : facts.noise) flips += leg.total.mismatched;
  }
  const auto legs = static_cast<int>(facts.noise.size());
  const int64_t allowed = AllowedFlips(flips, legs, risk);
  Test test;
  test.statistic = Statistic::kMismatches;
  // Digests tell that elements differ, not how many.
  test.value =
      facts.candidate.fidelity == Fidelity::kValues || out.stats.bitwise_equal()
          ? static_cast<double>(out.stats.mismatched)
          : std::numeric_limits<double>::quiet_NaN();
  test.bound = static_cast<double>(allowed);
  test.noise = legs == 0 ? 0 : static_cast<double>(flips) / legs;
  test.headroom = out.stats.bitwise_equal() ? 0
                  : allowed == 0 ? std::numeric_limits<double>::infinity()
                                 : test.value / test.bound;
  test.expected.origin = allowed == 0 ? Origin::kEqual : Origin::kNoise;
  test.expected.noise_legs = legs;
  out.fidelity = facts.candidate.fidelity;
  out.reordered = facts.candidate.reordered;
  if (out.stats.estimated() && allowed > 0) {
    // How many differ is not known, only that some do.
    out.checkable = false;
    out.uncertain = true;
    return out;
  }
  out.Add(std::move(test));
  if (out.headroom > 1) out.ranks = DifferingRanks(facts.candidate);
  return out;
}

}  // namespace ttrace
