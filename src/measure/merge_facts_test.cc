#include "src/measure/merge_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "src/compare/sharded_trace.h"
#include "src/measure/facts_json.h"

namespace ttrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> Moved(std::vector<double> values, double by,
                          unsigned seed) {
  const std::vector<double> noise = RandomReals(seed);
  for (size_t i = 0; i < values.size(); ++i) values[i] += by * noise[i];
  return values;
}

// Sequence over four ranks, hidden over two, copies on two.
Sharding Cut() {
  Sharding s;
  s.mesh.dims = {{"cp", 4}, {"tp", 2}, {"dp", 2}};
  s.placements = {{"cp", Shard{0}}, {"tp", Shard{2}}};
  return s;
}

// A reference, two noise legs of it and a candidate, of which one rank's copy
// is worse than the others.
class Experiment {
 public:
  Experiment()
      : reference_(kShape, RandomReals(1), kWhole),
        noise_a_(kShape, Moved(RandomReals(1), 1e-3, 2), kWhole),
        noise_b_(kShape, Moved(RandomReals(1), 1e-3, 3), kWhole),
        candidate_(kShape, Moved(RandomReals(1), 1e-3, 4), Cut(),
                   [](Piece* piece) {
                     if (piece->rank == 5) piece->values[3] += 0.5;
                     return true;
                   }) {}

  // What one rank would measure of its own pieces; of no rank: all of them.
  TensorFacts Measure(std::vector<int> ranks = {}) const {
    TensorPieces own = candidate_.pieces();
    if (!ranks.empty()) {
      own.pieces.EraseIf([&](const Record& piece) {
        return std::find(ranks.begin(), ranks.end(), piece.rank()) ==
               ranks.end();
      });
    }
    CompareOptions options;
    options.element_scale = 1;
    TensorFacts facts;
    facts.id.fqn = "layer";
    facts.reference_shape = facts.candidate_shape = kShape;
    LegFacts leg;
    leg.usable = true;
    leg.candidate = OrDie(CompareTensor(reference_.pieces(), own, options));
    for (const ShardedTrace* noisy : {&noise_a_, &noise_b_}) {
      PairFacts pair;
      pair.regions = OrDie(CompareWithin(reference_.pieces(), noisy->pieces(),
                                         leg.candidate.regions, options));
      for (const ErrorStats& region : pair.regions) pair.total.Merge(region);
      leg.noise.push_back(std::move(pair));
    }
    facts.candidate_repeat = RepeatFacts{leg.candidate.total};
    facts.legs.push_back(std::move(leg));
    return facts;
  }

 private:
  ShardedTrace reference_;
  ShardedTrace noise_a_;
  ShardedTrace noise_b_;
  ShardedTrace candidate_;
};

void ExpectNear(const ErrorStats& a, const ErrorStats& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.mismatched, b.mismatched);
  EXPECT_NEAR(a.sum_sq_err / b.sum_sq_err, 1, 1e-12);
  EXPECT_NEAR(a.sum_sq_ref / b.sum_sq_ref, 1, 1e-12);
  EXPECT_NEAR(a.sum_sq_elem / b.sum_sq_elem, 1, 1e-12);
  EXPECT_NEAR(a.sum_err_ref, b.sum_err_ref, 1e-12 * b.sum_sq_ref);
  EXPECT_EQ(a.max_abs_err, b.max_abs_err);
  EXPECT_EQ(a.max_abs_ref, b.max_abs_ref);
  EXPECT_EQ(a.max_elem, b.max_elem);
}

TEST(MergeFacts, PartsOfRanksAreTheWhole) {
  const Experiment experiment;
  const TensorFacts whole = experiment.Measure();
  std::vector<TensorFacts> parts;
  for (int rank = 0; rank < 16; ++rank) {
    parts.push_back(experiment.Measure({rank}));
  }
  const TensorFacts merged = OrDie(MergeFacts(parts));
  ASSERT_EQ(merged.legs.size(), 1U);
  const LegFacts& leg = merged.legs[0];
  const LegFacts& expected = whole.legs[0];
  EXPECT_TRUE(leg.usable);
  EXPECT_TRUE(leg.candidate.complete());
  EXPECT_EQ(leg.candidate.common_gap, 0);
  EXPECT_EQ(leg.candidate.regions.size(), 8U);
  int64_t copies = 0;
  for (const InstanceStats& one : leg.candidate.instances) copies += one.copies;
  EXPECT_EQ(copies, 16);
  // One of them is not as the others of its region.
  EXPECT_EQ(leg.candidate.instances.size(), 9U);
  ExpectNear(leg.candidate.total, expected.candidate.total);
  ASSERT_EQ(leg.noise.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    ExpectNear(leg.noise[i].total, expected.noise[i].total);
  }
  // Each instance finds the noise of what it holds.
  for (const InstanceStats& instance : leg.candidate.instances) {
    const auto region = static_cast<size_t>(instance.region);
    const auto same = std::find(expected.candidate.regions.begin(),
                                expected.candidate.regions.end(),
                                leg.candidate.regions[region]);
    ASSERT_NE(same, expected.candidate.regions.end());
    const auto there =
        static_cast<size_t>(same - expected.candidate.regions.begin());
    EXPECT_EQ(leg.noise[0].regions[region].sum_sq_err,
              expected.noise[0].regions[there].sum_sq_err);
  }
}

TEST(MergeFacts, TheOrderOfPartsDoesNotMatter) {
  const Experiment experiment;
  std::vector<TensorFacts> parts;
  for (int rank = 0; rank < 16; ++rank) {
    parts.push_back(experiment.Measure({rank}));
  }
  const std::string expected = EncodeFacts(OrDie(MergeFacts(parts)));
  std::mt19937 rng(1);
  for (int round = 0; round < 10; ++round) {
    std::shuffle(parts.begin(), parts.end(), rng);
    parts.front().order = 0;
    const TensorFacts merged = OrDie(MergeFacts(parts));
    // Sums of repeats are plain doubles.
    TensorFacts comparable = merged;
    comparable.candidate_repeat = OrDie(DecodeFacts(expected)).candidate_repeat;
    EXPECT_EQ(EncodeFacts(comparable), expected);
  }
}

TEST(MergeFacts, WhatNoPartHoldsIsAGap) {
  const Experiment experiment;
  const TensorFacts merged =
      OrDie(MergeFacts({experiment.Measure({0}), experiment.Measure({2, 3})}));
  const TensorComparison& comparison = merged.legs[0].candidate;
  EXPECT_EQ(comparison.regions.size(), 2U);
  EXPECT_EQ(comparison.candidate_gap, kCount - comparison.total.count);
  EXPECT_EQ(comparison.total.count, kCount / 4);
  EXPECT_FALSE(comparison.complete());
}

// Beside the comparison: each of it is in some parts only.
TEST(MergeFacts, WhatOnePartFoundIsSaidOfTheWhole) {
  const Experiment experiment;
  std::vector<TensorFacts> parts = {
      experiment.Measure({0}), experiment.Measure({2}), experiment.Measure({4}),
      experiment.Measure({6})};
  parts[0].update = SkippedUpdate{{}, 0, 0, false};
  parts[1].update = SkippedUpdate{{2}, 5, 3, true};
  parts[2].update = SkippedUpdate{{1}, 7, 6, false};
  parts[1].foreign_parts = RepeatedParts{{2}, {0}};
  parts[2].foreign_parts = RepeatedParts{{4}, {0}};
  parts[1].reference_repeat = RepeatFacts{parts[1].legs[0].candidate.total};
  parts[1].damage = "rank 2";
  parts[2].damage = "rank 4";
  parts[1].legs[0].trouble = "of rank 2";
  parts[0].legs[0].replicas = ReplicaComparison{1, 1, 0, 0, {}, {}};
  parts[2].legs[0].replicas = ReplicaComparison{1, 1, 1, 0.5, {4, 5}, {"dp"}};
  parts[1].own = parts[1].legs[0].candidate;
  parts[2].own = parts[2].legs[0].candidate;
  // Its rank has nothing to say.
  parts[3].candidate_repeat = std::nullopt;
  const int64_t repeated = parts[0].candidate_repeat->total.count +
                           parts[1].candidate_repeat->total.count +
                           parts[2].candidate_repeat->total.count;
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return EncodeFacts(a) < EncodeFacts(b);
  });
  do {
    const TensorFacts merged = OrDie(MergeFacts(parts));
    EXPECT_THAT(merged.update->ranks, ElementsAre(1, 2));
    EXPECT_EQ(merged.update->unchanged, 7);
    EXPECT_EQ(merged.update->changed, 6);
    EXPECT_TRUE(merged.update->far);
    EXPECT_THAT(merged.foreign_parts->ranks, ElementsAre(2, 4));
    EXPECT_THAT(merged.foreign_parts->owners, ElementsAre(0));
    EXPECT_FALSE(merged.reference_repeat->bitwise());
    EXPECT_EQ(merged.damage, "rank 2");
    EXPECT_EQ(merged.legs[0].trouble, "of rank 2");
    EXPECT_EQ(merged.legs[0].replicas->groups, 2);
    EXPECT_THAT(merged.legs[0].replicas->differing_ranks, ElementsAre(4, 5));
    EXPECT_EQ(merged.own->regions.size(), 2U);
    ASSERT_TRUE(merged.candidate_repeat);
    EXPECT_EQ(merged.candidate_repeat->total.count, repeated);
  } while (std::next_permutation(parts.begin(), parts.end(),
                                 [](const auto& a, const auto& b) {
                                   return EncodeFacts(a) < EncodeFacts(b);
                                 }));
}

TEST(MergeFacts, WhatNoPartFoundIsNotSaid) {
  const Experiment experiment;
  const TensorFacts merged =
      OrDie(MergeFacts({experiment.Measure({0}), experiment.Measure({2})}));
  EXPECT_FALSE(merged.update);
  EXPECT_FALSE(merged.foreign_parts);
  EXPECT_FALSE(merged.reference_repeat);
  EXPECT_FALSE(merged.own);
  EXPECT_FALSE(merged.legs[0].replicas);
}

TEST(MergeFacts, RefusesPartsThatAreNotOfOneTensor) {
  EXPECT_FALSE(MergeFacts({}).ok());
  const Experiment experiment;
  TensorFacts other = experiment.Measure({1});
  other.id.fqn = "another";
  const auto names = MergeFacts({experiment.Measure({0}), other});
  ASSERT_FALSE(names.ok());
  EXPECT_EQ(names.error().code(), ErrorCode::kInvalidArgument);
  other = experiment.Measure({2});
  other.legs[0].noise.pop_back();
  const auto noise = MergeFacts({experiment.Measure({0}), other});
  ASSERT_FALSE(noise.ok());
  EXPECT_THAT(noise.error().message(), HasSubstr("noise legs"));
  other = experiment.Measure({2});
  other.legs[0].noise[1].regions.clear();
  const auto regions = MergeFacts({experiment.Measure({0}), other});
  ASSERT_FALSE(regions.ok());
  EXPECT_THAT(regions.error().message(), HasSubstr("regions of noise legs"));
  for (const auto& change : std::vector<std::function<void(TensorFacts*)>>{
           [](TensorFacts* facts) { facts->in_reference = false; },
           [](TensorFacts* facts) { facts->exact = true; },
           [](TensorFacts* facts) { facts->vector = true; },
           [](TensorFacts* facts) { facts->lookup = true; },
           [](TensorFacts* facts) { facts->dtype = DType::kBF16; },
           [](TensorFacts* facts) { facts->reference_shape = {1}; },
           [](TensorFacts* facts) { facts->candidate_shape = {1}; }}) {
    other = experiment.Measure({2});
    change(&other);
    const auto kinds = MergeFacts({experiment.Measure({0}), other});
    ASSERT_FALSE(kinds.ok());
    EXPECT_THAT(kinds.error().message(), HasSubstr("shapes or dtypes"));
  }
  other = experiment.Measure({2});
  other.legs[0].candidate.regions[0].dims[0].segments[0].begin = 1;
  const auto overlap = MergeFacts({experiment.Measure({0, 2}), other});
  ASSERT_FALSE(overlap.ok());
  EXPECT_EQ(overlap.error().code(), ErrorCode::kIncomparable);
}

TEST(FactsJson, ComesBackBitForBit) {
  const Experiment experiment;
  TensorFacts facts = experiment.Measure();
  facts.id = {"decoder.\xc3\xa9", Role::kGradReduced, 3, 1, "0",
              Pass::kBackward};
  facts.order = 17;
  facts.exact = facts.vector = facts.lookup = true;
  facts.complete = false;
  facts.dtype = DType::kBF16;
  facts.replicas = {2, 3, 1, std::numeric_limits<double>::infinity(), {4}, {}};
  facts.legs[0].candidate_hp = facts.legs[0].noise[0];
  facts.legs[0].noise[0].total.sum_err_ref =
      -std::numeric_limits<double>::infinity();
  facts.legs[0].noise[1].total.sum_sq_err =
      std::numeric_limits<double>::quiet_NaN();
  facts.legs[0].replicas = facts.replicas;
  facts.own = facts.legs[0].candidate;
  facts.update = SkippedUpdate{{1}, 5, 3, true};
  facts.foreign_parts = RepeatedParts{{0}, {1}};
  facts.damage = "rank 0";
  const std::string line = EncodeFacts(facts);
  const TensorFacts again = OrDie(DecodeFacts(line));
  EXPECT_EQ(EncodeFacts(again), line);
  EXPECT_EQ(again.id, facts.id);
  EXPECT_EQ(again.dtype, DType::kBF16);
  EXPECT_EQ(again.legs[0].candidate.total.sum_err_ref,
            facts.legs[0].candidate.total.sum_err_ref);
  EXPECT_TRUE(std::isnan(again.legs[0].noise[1].total.sum_sq_err));
  EXPECT_EQ(again.legs[0].noise[0].total.sum_err_ref,
            facts.legs[0].noise[0].total.sum_err_ref);
  EXPECT_EQ(again.replicas.worst_rel_err, facts.replicas.worst_rel_err);
  EXPECT_EQ(again.update->changed, 3);
}

TEST(FactsJson, NamesWhatIsWrong) {
  const std::string line = EncodeFacts(Experiment().Measure({0}));
  for (const char* text : {"", "[1]"}) {
    const auto decoded = DecodeFacts(text);
    ASSERT_FALSE(decoded.ok());
    EXPECT_THAT(decoded.error().message(), HasSubstr("no JSON object"));
  }
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"\"usable\"", "\"useful\""},
           {"\"role\":\"output\"", "\"role\":\"nothing\""},
           {"\"role\":\"output\"", "\"role\":3"},
           {"\"fqn\":\"layer\"", "\"fqn\":7"},
           {"\"usable\":true", "\"usable\":1"},
           {"\"region\":0", "\"region\":7"},
           {"\"region\":0", "\"region\":-1"},
           {"\"begin\":0", "\"begin\":-1"},
           {"\"global_size\":12", "\"global_size\":-12"},
           {"\"global_size\":12", "\"global_size\":9223372036854775807"},
           {"\"mesh_dims\":[]", "\"mesh_dims\":{}"},
           {"\"count\":", "\"count\":\"x\",\"old\":"}}) {
    std::string bad = line;
    const size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    const auto decoded = DecodeFacts(bad);
    ASSERT_FALSE(decoded.ok()) << to;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt);
  }
}

TEST(FactsJson, RefusesRegionsThatAreNotInTheirTensor) {
  TensorFacts facts = Experiment().Measure({0});
  const int64_t size = facts.legs[0].candidate.regions[0].dims[0].global_size;
  constexpr int64_t kHuge = int64_t{1} << 62;
  const auto decodes = [&](const DimLayout& dim) {
    facts.legs[0].candidate.regions[0].dims = {dim};
    return DecodeFacts(EncodeFacts(facts)).ok();
  };
  EXPECT_TRUE(decodes({{{0, 1}, {size - 1, 1}}, size}));
  EXPECT_TRUE(decodes({{}, 0}));
  EXPECT_FALSE(decodes({{}, -1}));
  EXPECT_FALSE(decodes({{{0, -1}}, size}));
  EXPECT_FALSE(decodes({{{0, size + 1}}, size}));
  EXPECT_FALSE(decodes({{{1, size}}, size}));
  EXPECT_TRUE(decodes({{{0, kHuge}}, kHuge}));
  EXPECT_FALSE(decodes({{{0, kHuge}, {0, kHuge}}, kHuge}));
}

}  // namespace
}  // namespace ttrace
