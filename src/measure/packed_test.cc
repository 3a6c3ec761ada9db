#include "src/measure/packed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace ttrace::packed_test {
namespace {

template <typename T>
std::string Packed(const T& value) {
  Packer packer;
  packer.Add(value);
  return packer.bytes();
}

template <typename T>
bool Unpacks(const std::string& bytes, T* out) {
  Unpacker unpacker(bytes);
  unpacker.Take(out);
  return unpacker.done();
}

TEST(Packed, DoublesComeBackBitForBit) {
  std::mt19937_64 random(1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values = {0.0,  -0.0,  1.0 / 3,   5e-324,    1e308,
                                kNan, -kNan, kInfinity, -kInfinity};
  for (int i = 0; i < 1000; ++i) {
    values.push_back(std::bit_cast<double>(random()));
  }
  for (const double value : values) {
    double back = 7;
    ASSERT_TRUE(Unpacks(Packed(value), &back));
    EXPECT_EQ(std::bit_cast<uint64_t>(back), std::bit_cast<uint64_t>(value));
  }
}

TEST(Packed, IntegersTakeWhatTheyNeed) {
  for (const int64_t value :
       {int64_t{0}, int64_t{-1}, int64_t{63}, int64_t{64}, int64_t{-12345678},
        std::numeric_limits<int64_t>::max(),
        std::numeric_limits<int64_t>::min()}) {
    int64_t back = 7;
    ASSERT_TRUE(Unpacks(Packed(value), &back)) << value;
    EXPECT_EQ(back, value);
  }
  EXPECT_EQ(Packed(int64_t{-3}).size(), 1u);
  uint64_t large = 7;
  ASSERT_TRUE(Unpacks(Packed(~uint64_t{0}), &large));
  EXPECT_EQ(large, ~uint64_t{0});
  int small = 0;
  EXPECT_FALSE(Unpacks(Packed(int64_t{1} << 40), &small));
}

TEST(Packed, ContainersAndTextsComeBack) {
  using Value = std::map<std::string, std::vector<std::set<int>>>;
  const Value value = {{std::string("a\0\xff", 3), {{1, 2}, {}}}, {"", {}}};
  Value back;
  ASSERT_TRUE(Unpacks(Packed(value), &back));
  EXPECT_EQ(back, value);
}

TEST(Packed, FactsAndStepsComeBack) {
  TensorFacts facts;
  facts.id = {"a.b", Role::kGradReduced, 3, 1, "x", Pass::kBackward};
  facts.order = 12;
  facts.in_reference = false;
  facts.dtype = DType::kBF16;
  facts.reference_shape = {3, 4};
  LegFacts& leg = facts.legs.emplace_back();
  leg.plan = 2;
  leg.usable = true;
  leg.trouble = "none";
  leg.candidate.total.max_abs_err = std::nan("");
  leg.candidate.regions = {{{{{{0, 3}}, 3}, {{{0, 2}, {3, 1}}, 4}}}};
  leg.candidate.instances = {{{0, 1}, -1, {}, 0}};
  leg.candidate.routed = RoutedTokens{1, 2, 3, 4};
  leg.flips = RoutingFlips{4, {{1, 0.25}}};
  leg.noise.resize(2);
  leg.noise[1].regions.resize(1);
  leg.noise[1].regions[0].sum_sq_err = -0.0;
  facts.unplaced = RoutingTrouble{true, 1, "router", 2, 3, 4, "text"};
  const std::string bytes = Packed(facts);
  TensorFacts again;
  ASSERT_TRUE(Unpacks(bytes, &again));
  EXPECT_EQ(Packed(again), bytes);
  EXPECT_EQ(again.id, facts.id);
  EXPECT_EQ(again.legs[0].candidate.regions, leg.candidate.regions);
  EXPECT_TRUE(std::signbit(again.legs[0].noise[1].regions[0].sum_sq_err));

  ReplayedStep step;
  step.step = {2, "a"};
  step.errors[3].ranks = {1, 5};
  step.gaps[{StepGap::Kind::kNotHeld, "exp_avg"}] = {2};
  step.whole = true;
  step.sample.emplace();
  step.sample->rule.algorithm = StepAlgorithm::kSgd;
  step.sample->rule.clip_norm = 0.5;
  step.sample->quantities = {StepQuantity::kCopy};
  step.sample->known[4] = true;
  step.sample->elements.resize(2);
  step.sample->elements[1][13] = 0.1;
  ReplayedStep step_again;
  ASSERT_TRUE(Unpacks(Packed(step), &step_again));
  EXPECT_EQ(Packed(step_again), Packed(step));
  EXPECT_EQ(step_again.sample->elements[1][13], 0.1);
}

// Bytes that nobody wrote: an answer, and no more memory than they account for.
TEST(Packed, AnyBytesGiveAnAnswer) {
  TensorFacts facts;
  facts.legs.resize(2);
  facts.legs[0].candidate.instances.resize(3);
  const std::string good = Packed(facts);
  for (size_t left = 0; left < good.size(); ++left) {
    TensorFacts out;
    EXPECT_FALSE(Unpacks(good.substr(0, left), &out)) << left;
  }
  TensorFacts more;
  EXPECT_FALSE(Unpacks(good + "x", &more));
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int n = 0; n < 3; ++n) {
      bad[random() % bad.size()] = static_cast<char>(random());
    }
    TensorFacts out;
    (void)Unpacks(bad, &out);
  }
  std::vector<double> values;
  EXPECT_FALSE(Unpacks(Packed(int64_t{1} << 40), &values));
  std::string text;
  EXPECT_FALSE(Unpacks(Packed(int64_t{-5}), &text));
}

TEST(Packed, WordsThatDoNotExistAreRefused) {
  Role role = Role::kLoss;
  EXPECT_TRUE(Unpacks(Packed(Role::kOptimState), &role));
  EXPECT_FALSE(Unpacks(Packed(kRoleCount), &role));
  EXPECT_FALSE(Unpacks(Packed(-1), &role));
  bool flag = false;
  EXPECT_FALSE(Unpacks(std::string("\2"), &flag));
}

}  // namespace
}  // namespace ttrace::packed_test
