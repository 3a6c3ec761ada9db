#include "src/experiment/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "src/numeric/round_to.h"

namespace ttrace::rounding_test {
namespace {

constexpr double kBf16 = 0x1p-8;

double Bf16(double x) { return RoundTo(x, DType::kBF16); }

// The derivation, tried: terms and partial sums rounded to bf16 one after the
// other have the error that the bound counts on.
TEST(SummationGrowth, IsWhatSumsOfBf16Show) {
  std::mt19937 rng(3);
  std::normal_distribution<double> normal;
  const auto error_of = [&](int ranks) {
    double squares = 0;
    double norm = 0;
    for (int i = 0; i < 20'000; ++i) {
      double exact = 0;
      double sum = 0;
      for (int r = 0; r < ranks; ++r) {
        const double term = normal(rng);
        exact += term;
        sum = Bf16(sum + Bf16(term));
      }
      squares += (sum - exact) * (sum - exact);
      norm += exact * exact;
    }
    return squares / norm;
  };
  const double one = error_of(1);
  Rounding rounding;
  rounding.unit_roundoff = kBf16;
  for (const int ranks : {2, 4, 8, 32}) {
    rounding.candidate_ranks = ranks;
    const double growth = SummationGrowth(rounding);
    EXPECT_NEAR((error_of(ranks) / one + 1) / 2, growth * growth,
                0.15 * growth * growth)
        << ranks;
  }
}

// Two matrices with something between them that is not linear: three roundings,
// of which none is larger than that of the result.
TEST(SummationGrowth, CoversAModuleOfTwoMatrices) {
  constexpr size_t kSize = 16;
  std::mt19937 rng(5);
  std::normal_distribution<double> normal;
  const auto matrix = [&] {
    std::vector<double> out(kSize * kSize);
    for (double& x : out) x = normal(rng) / std::sqrt(double{kSize});
    return out;
  };
  const auto product = [](const std::vector<double>& m,
                          const std::vector<double>& x, bool rounds) {
    std::vector<double> out(kSize);
    for (size_t i = 0; i < kSize; ++i) {
      for (size_t k = 0; k < kSize; ++k) out[i] += m[i * kSize + k] * x[k];
      if (rounds) out[i] = Bf16(out[i]);
    }
    return out;
  };
  double squares = 0;
  double once = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const auto up = matrix();
    const auto down = matrix();
    std::vector<double> x(kSize);
    for (double& value : x) value = normal(rng);
    const auto run = [&](bool rounds) {
      auto h = product(up, x, rounds);
      for (double& value : h) {
        value = rounds ? Bf16(std::tanh(value)) : std::tanh(value);
      }
      return product(down, h, rounds);
    };
    const auto exact = run(false);
    const auto rounded = run(true);
    for (size_t i = 0; i < kSize; ++i) {
      squares += (rounded[i] - exact[i]) * (rounded[i] - exact[i]);
      once += (Bf16(exact[i]) - exact[i]) * (Bf16(exact[i]) - exact[i]);
    }
  }
  Rounding rounding;
  rounding.unit_roundoff = kBf16;
  rounding.products = 2;
  const double growth = SummationGrowth(rounding);
  EXPECT_LT(std::sqrt(squares / once), growth);
  EXPECT_GT(std::sqrt(squares / once), growth / 2);
  EXPECT_GT(std::sqrt(squares / once), 1.3);  // one rounding does not cover it
}

// The same numbers, added in fp32 from the first on and from the last.
TEST(OtherOrderRounding, IsWhatSumsInTwoOrdersShow) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal;
  for (const int terms : {24, 256}) {
    double squares = 0;
    double norm = 0;
    std::vector<float> all(static_cast<size_t>(terms));
    for (int i = 0; i < 5'000; ++i) {
      for (float& term : all) term = normal(rng) * normal(rng);
      const float one = std::accumulate(all.begin(), all.end(), 0.0F);
      const float other = std::accumulate(all.rbegin(), all.rend(), 0.0F);
      squares += (double{one} - other) * (double{one} - other);
      norm += double{one} * one;
    }
    Rounding rounding;
    rounding.unit_roundoff = 0x1p-24;
    rounding.longest_sum = terms;
    const double bound =
        SummationGrowth(rounding) * OtherOrderRounding(rounding);
    EXPECT_NEAR(std::sqrt(squares / norm) / bound, 1, 0.15) << terms;
  }
  Rounding single;
  single.unit_roundoff = 0x1p-24;
  EXPECT_EQ(OtherOrderRounding(single), 0);
}

// Each run rounds its summands to bf16 and adds them in fp32.
TEST(OtherSummandsRounding, IsWhatTwoCutsOfASumShow) {
  std::mt19937 rng(7);
  std::normal_distribution<double> normal;
  for (const int summands : {2, 4, 16}) {
    double squares = 0;
    double norm = 0;
    for (int i = 0; i < 20'000; ++i) {
      double exact = 0;
      double sum = 0;
      for (int k = 0; k < summands; ++k) {
        const double term = normal(rng);
        exact += term;
        sum += Bf16(term);
      }
      squares += (sum - Bf16(exact)) * (sum - Bf16(exact));
      norm += exact * exact;
    }
    Rounding rounding;
    rounding.unit_roundoff = kBf16;
    rounding.candidate_summands = summands;
    const double expected = OtherSummandsRounding(rounding);
    EXPECT_NEAR(std::sqrt(squares / norm), expected, 0.1 * expected)
        << summands;
    // What a module computes in fp32 of what bf16 code hands it.
    rounding.unit_roundoff = kFp32Roundoff;
    rounding.maker_roundoff = kBf16;
    EXPECT_EQ(OtherSummandsRounding(rounding), expected);
    rounding.maker_roundoff = 0;
    EXPECT_EQ(OtherSummandsRounding(rounding), 0);
    rounding.unit_roundoff = kBf16;
    rounding.reference_summands = summands;
    EXPECT_EQ(OtherSummandsRounding(rounding), 0);
    // As many, and other ones.
    rounding.reference_parts.squares = 10;
    EXPECT_EQ(OtherSummandsRounding(rounding), 0);
    rounding.candidate_parts.squares = 10;
    EXPECT_EQ(OtherSummandsRounding(rounding), 0);
    rounding.candidate_parts.squares = 10 + 1e-5;
    EXPECT_EQ(OtherSummandsRounding(rounding), expected);
  }
}

// One rank has nearly all of the sum, and is the first of the ring: that of a
// loss's gradient, which the rank with the target makes.
TEST(PartialSumRounding, IsWhatADominatedSumOfBf16Shows) {
  std::mt19937 rng(4);
  std::uniform_real_distribution<double> even(0, 1);
  for (const int ranks : {2, 8, 32}) {
    double squares = 0;
    double norm = 0;
    for (int i = 0; i < 20'000; ++i) {
      const double first = Bf16(std::exp2(even(rng)));
      double exact = first;
      double sum = first;
      for (int r = 1; r < ranks; ++r) {
        // Beside it, and not so small that it is lost altogether.
        const double term = Bf16(0.02 * (even(rng) - 0.5));
        exact += term;
        sum = Bf16(sum + term);
      }
      squares += (sum - exact) * (sum - exact);
      norm += exact * exact;
    }
    Rounding rounding;
    rounding.unit_roundoff = kBf16;
    rounding.candidate_ranks = ranks;
    const double expected = PartialSumRounding(rounding);
    EXPECT_NEAR(std::sqrt(squares / norm), expected, 0.15 * expected) << ranks;
  }
}

// Sums of small numbers of fp16, of two runs whose loss scales differ.
TEST(SpacingRounding, IsWhatTwoRunsOfFp16Show) {
  constexpr double kStep = 0x1p-24;
  constexpr int kCount = 50'000;
  std::mt19937 rng(5);
  std::normal_distribution<double> normal;
  // The error of one sum, and what it should have been.
  const auto round_sum = [&](double step, int summands, double* exact) {
    double sum = 0;
    *exact = 0;
    for (int i = 0; i < summands; ++i) {
      const double value = 20 * kStep * normal(rng);
      *exact += value;
      sum += step * std::nearbyint(value / step);
    }
    return sum - *exact;
  };
  for (const int summands : {1, 4}) {
    for (const double scale : {1.0, 0.25, 8.0}) {
      double squares = 0;
      double norm = 0;
      for (int i = 0; i < kCount; ++i) {
        double exact = 0;
        const double candidate = round_sum(scale * kStep, summands, &exact);
        const double reference = round_sum(kStep, 1, &exact);
        squares += candidate * candidate + reference * reference;
        norm += exact * exact;
      }
      Rounding rounding;
      rounding.reference_spacing = kStep;
      rounding.candidate_spacing = scale * kStep;
      rounding.candidate_summands = summands;
      EXPECT_NEAR(
          SpacingRounding(rounding, kCount, norm) / std::sqrt(squares / norm),
          1, 0.02)
          << summands << " of " << scale;
    }
  }
}

TEST(CoarserSpacing, GrowsOnlyWhatIsRoundedToTheSpacing) {
  Rounding rounding;
  rounding.unit_roundoff = 0x1p-11;
  rounding.reference_spacing = 0x1p-24;
  rounding.candidate_spacing = 0x1p-22;
  // Large values, and those of one unit.
  EXPECT_NEAR(CoarserSpacing(rounding, 100, 100.0), 1, 1e-6);
  EXPECT_NEAR(CoarserSpacing(rounding, 100, 100 * 0x1p-48), 4, 1e-3);
  rounding.candidate_spacing = 0x1p-26;
  EXPECT_EQ(CoarserSpacing(rounding, 100, 100 * 0x1p-48), 1);
  rounding.reference_spacing = rounding.candidate_spacing = 0;
  EXPECT_EQ(CoarserSpacing(rounding, 100, 1.0), 1);
}

// Terms added one after the other in bf16: the same terms in sums of K.
TEST(LongerTokenSums, BoundsWhatRunningSumsOfBf16Show) {
  std::mt19937 rng(6);
  std::normal_distribution<double> normal;
  for (const double mean : {0.0, 0.3, 3.0}) {
    const auto error_of = [&](int tokens) {
      double squares = 0;
      for (int i = 0; i < 2'000; ++i) {
        double exact = 0;
        double sum = 0;
        for (int first = 0; first < 64; first += tokens) {
          double part = 0;
          for (int t = 0; t < tokens; ++t) {
            const double term = Bf16(normal(rng) + mean);
            exact += term;
            part = Bf16(part + term);
          }
          sum += part;
        }
        squares += (sum - exact) * (sum - exact);
      }
      return std::sqrt(squares);
    };
    const double one = error_of(8);
    for (const int tokens : {16, 64}) {
      Rounding rounding;
      rounding.reference_tokens = 8;
      rounding.candidate_tokens = tokens;
      const double growth = LongerTokenSums(rounding);
      EXPECT_LT(error_of(tokens) / one, 1.1 * growth) << mean;
      EXPECT_GT(error_of(tokens) / one, 0.9 * std::sqrt(growth)) << mean;
    }
  }
}

// Ones, added to a running sum of bf16: it stays at 256.
TEST(LongestTokenSumLoses, IsMoreThanARunningSumOfBf16Loses) {
  for (const int tokens : {300, 512, 5000}) {
    double sum = 0;
    for (int t = 0; t < tokens; ++t) {
      sum = Bf16(sum + 1);
    }
    EXPECT_EQ(sum, 256);
    Rounding rounding;
    rounding.unit_roundoff = kBf16;
    rounding.reference_tokens = 100;
    rounding.candidate_tokens = tokens;
    EXPECT_GT(LongestTokenSumLoses(rounding), (tokens - sum) / tokens);
    rounding.reference_tokens = tokens;
    EXPECT_EQ(LongestTokenSumLoses(rounding), 0);
  }
}

// Each rank's term is rounded to bf16, and the terms are summed in bf16.
TEST(RoundingOfSent, AdmitsWhatACompressedReductionShows) {
  std::mt19937 rng(11);
  std::normal_distribution<double> normal;
  for (const int ranks : {1, 2, 4, 8}) {
    // Terms that do not know of each other, that are alike, and that are much
    // larger than what is left of them.
    for (const double shared : {0.0, 1.0, -0.9}) {
      double squares = 0;
      double terms = 0;
      double norm = 0;
      for (int i = 0; i < 20'000; ++i) {
        const double common = normal(rng);
        double exact = 0;
        double sum = 0;
        for (int r = 0; r < ranks; ++r) {
          const double sign = shared < 0 && r % 2 == 1 ? -1 : 1;
          const double term = std::fabs(shared) * sign * common +
                              (1 - std::fabs(shared)) * normal(rng);
          exact += term;
          terms += term * term;
          sum = Bf16(sum + Bf16(term));
        }
        squares += (sum - exact) * (sum - exact);
        norm += exact * exact;
      }
      Rounding rounding;
      rounding.unit_roundoff = kFp32Roundoff;
      rounding.candidate_sent =
          RoundingOfSent(DType::kBF16, ranks, 1, terms / norm);
      const double error = std::sqrt(squares / norm);
      const double admitted = PartialSumRounding(rounding);
      EXPECT_LT(error, 1.05 * admitted) << ranks << " " << shared;
      // Not so much more that it would hide anything: the division is not in
      // what was tried.
      EXPECT_GT(3 * error, admitted) << ranks << " " << shared;
    }
  }
}

TEST(RoundingOfSent, IsNothingWhereGradientsAreSentAsTheyAre) {
  Rounding rounding;
  rounding.unit_roundoff = kFp32Roundoff;
  EXPECT_EQ(PartialSumRounding(rounding), 0);
  EXPECT_EQ(SpacingRounding(rounding, 10, 1), 0);
}

// fp16 holds numbers down to 2^-24: of smaller ones nothing is sent.
TEST(RoundingOfSent, CountsTheSpacingOfItsSmallestNumbers) {
  Rounding rounding;
  rounding.unit_roundoff = kFp32Roundoff;
  rounding.candidate_sent = RoundingOfSent(DType::kF16, 2, 1, 1);
  const double small = 0x1p-28;
  EXPECT_GT(SpacingRounding(rounding, 100, 100 * small * small), 1);
  EXPECT_LT(SpacingRounding(rounding, 100, 100), 1e-6);
}

}  // namespace
}  // namespace ttrace::rounding_test
