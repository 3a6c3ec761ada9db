#include "src/measure/packed_facts.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace ttrace::packed_facts_test {
namespace {

TensorFacts Named(const std::string& fqn, int64_t order) {
  TensorFacts facts;
  facts.id.fqn = fqn;
  facts.order = order;
  facts.legs.emplace_back().trouble = "none";
  return facts;
}

std::vector<std::string> NamesOf(const PackedFacts& all) {
  std::vector<std::string> names;
  for (const TensorFacts& facts : all) names.push_back(facts.id.fqn);
  return names;
}

TEST(PackedFacts, GiveWhatTheyWereGiven) {
  const TensorFacts one = Named("one", 3);
  PackedFacts all = {one, Named("two", 1)};
  EXPECT_EQ(all[0].id, one.id);
  EXPECT_EQ(all[0].order, 3);
  all.Set(0, Named("other", 4));
  EXPECT_EQ(NamesOf(all), (std::vector<std::string>{"other", "two"}));
  const size_t before = all.bytes();
  all.Forget(1);
  EXPECT_LT(all.bytes(), before);
  EXPECT_EQ(all.front().order, 4);
}

TEST(PackedFacts, AreSortedByOrder) {
  PackedFacts all = {Named("c", 7), Named("a", 1)};
  all.Append({Named("b", 2)});
  all.Sort();
  EXPECT_EQ(NamesOf(all), (std::vector<std::string>{"a", "b", "c"}));
}

// A check has this much for each tensor, of tens of thousands, until all are
// measured. Unpacked it would be 4 kB.
TEST(PackedFacts, OfATensorOfManyRanksAreSmall) {
  constexpr int kRegions = 8;
  constexpr int kCopies = 16;
  TensorFacts facts = Named("decoder.layers.31.mlp.linear_fc1", 31234);
  facts.reference_shape = facts.candidate_shape = {kRegions, 16};
  facts.candidate_repeat = facts.reference_repeat = RepeatFacts{};
  LegFacts& leg = facts.legs.front();
  leg.candidate.regions.resize(kRegions);
  for (int region = 0; region < kRegions; ++region) {
    InstanceStats& part = leg.candidate.instances.emplace_back();
    for (int copy = 0; copy < kCopies; ++copy) {
      part.ranks.push_back(512 + copy * kRegions + region);
    }
    part.region = region;
    part.copies = kCopies;
    part.stats.count = 16;
    part.stats.sum_sq_ref = 16.0 / 3;
    part.stats.max_abs_ref = 2.0 / 3;
  }
  EXPECT_LT(PackedFacts({facts}).bytes(), 1000u);
}

}  // namespace
}  // namespace ttrace::packed_facts_test
