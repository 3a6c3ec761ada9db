#include "src/compare/equal_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace ttrace::equal_copies_test {
namespace {

using testing::ElementsAre;

InstanceStats Of(std::vector<int> ranks, int micro_batch, double sum_sq_err,
                 int region = 0) {
  InstanceStats out;
  out.ranks = std::move(ranks);
  out.micro_batch = micro_batch;
  out.stats.count = 4;
  out.stats.sum_sq_err = sum_sq_err;
  out.region = region;
  return out;
}

TensorComparison Joined(std::vector<InstanceStats> instances) {
  TensorComparison out;
  out.instances = std::move(instances);
  JoinEqualCopies(&out);
  return out;
}

TEST(EqualCopies, AreOneEntryWithAllTheirRanks) {
  const TensorComparison got =
      Joined({Of({0, 1}, 2, 5), Of({4, 5}, 2, 5), Of({2, 3}, 2, 5)});
  ASSERT_EQ(got.instances.size(), 1U);
  EXPECT_THAT(got.instances[0].ranks, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(got.instances[0].copies, 3);
  EXPECT_EQ(got.instances[0].micro_batch, 2);
  EXPECT_EQ(got.instances[0].stats.sum_sq_err, 5);
}

TEST(EqualCopies, WhatDiffersInAnythingStaysApart) {
  EXPECT_EQ(Joined({Of({0}, 0, 1), Of({1}, 1, 1)}).instances.size(), 2U);
  EXPECT_EQ(Joined({Of({0}, 0, 1), Of({1}, 0, 1, 1)}).instances.size(), 2U);
  EXPECT_EQ(Joined({Of({0}, 0, 1), Of({1}, 0, 1 + 1e-15)}).instances.size(),
            2U);
  InstanceStats other = Of({1}, 0, 1);
  other.stats.mismatched = 1;
  EXPECT_EQ(Joined({Of({0}, 0, 1), other}).instances.size(), 2U);
}

TEST(EqualCopies, OneThatIsWrongIsNotHiddenByTheOthers) {
  std::vector<InstanceStats> all;
  for (int rank = 0; rank < 64; ++rank) {
    all.push_back(Of({rank}, 0, rank == 17 ? 9 : 1));
  }
  const TensorComparison got = Joined(std::move(all));
  ASSERT_EQ(got.instances.size(), 2U);
  EXPECT_EQ(got.instances[0].copies, 63);
  EXPECT_THAT(got.instances[1].ranks, ElementsAre(17));
  EXPECT_EQ(got.instances[1].stats.sum_sq_err, 9);
}

TEST(EqualCopies, OfNotANumberAreOneAsWell) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Joined({Of({0}, 0, nan), Of({1}, 0, nan)}).instances.size(), 1U);
}

TEST(EqualCopies, ComeOutAlikeInAnyOrderAndInAnySteps) {
  std::vector<InstanceStats> all;
  for (int rank = 0; rank < 48; ++rank) {
    all.push_back(Of({rank}, rank % 2, rank % 3, rank % 4));
  }
  const TensorComparison want = Joined(all);
  EXPECT_EQ(want.instances.size(), 12U);
  std::mt19937 rng(3);
  for (int round = 0; round < 8; ++round) {
    std::shuffle(all.begin(), all.end(), rng);
    const std::vector<InstanceStats> half(all.begin(), all.begin() + 24);
    TensorComparison got = Joined(half);
    got.instances.insert(got.instances.end(), all.begin() + 24, all.end());
    JoinEqualCopies(&got);
    ASSERT_EQ(got.instances.size(), want.instances.size());
    for (size_t i = 0; i < got.instances.size(); ++i) {
      EXPECT_EQ(got.instances[i].ranks, want.instances[i].ranks);
      EXPECT_EQ(got.instances[i].copies, want.instances[i].copies);
      EXPECT_EQ(got.instances[i].region, want.instances[i].region);
    }
  }
}

}  // namespace
}  // namespace ttrace::equal_copies_test
