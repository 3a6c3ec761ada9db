#include "src/experiment/execution_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttrace::execution_order_test {
namespace {

using testing::ElementsAre;

TensorId Layer(const std::string& name, Role role = Role::kOutput) {
  TensorId id;
  id.fqn = name;
  id.role = role;
  return id;
}

// In the order in which a reference without stages has them.
std::vector<std::string> Follow(const std::vector<std::string>& reference,
                                const std::vector<ExecutionKey>& keys,
                                const std::vector<TensorId>& ids) {
  std::vector<Ordered> order;
  for (size_t i = 0; i < ids.size(); ++i) order.emplace_back(keys[i], &ids[i]);
  FollowReference(
      [&](const TensorId& id) -> int64_t {
        for (size_t i = 0; i < reference.size(); ++i) {
          if (reference[i] == id.fqn) return static_cast<int64_t>(i);
        }
        return -1;
      },
      &order);
  std::vector<std::string> names;
  for (const auto& [key, id] : order) names.push_back(id->fqn);
  return names;
}

TEST(FollowReference, GoesRoundTheStagesWhereTheyHoldSeveralChunks) {
  const std::vector<TensorId> ids = {Layer("0"), Layer("2"), Layer("1"),
                                     Layer("3")};
  const std::vector<ExecutionKey> keys = {{0, 0, 1, 0, 0, 1, 0},
                                          {0, 0, 1, 0, 0, 2, 0},
                                          {0, 0, 1, 0, 1, 1, 1},
                                          {0, 0, 1, 0, 1, 2, 1}};
  EXPECT_THAT(Follow({"0", "1", "2", "3"}, keys, ids),
              ElementsAre("0", "1", "2", "3"));
}

TEST(FollowReference, WhatTheReferenceLacksStaysBehindItsStage) {
  const std::vector<TensorId> ids = {Layer("0"), Layer("2"), Layer("own"),
                                     Layer("1"), Layer("3")};
  const std::vector<ExecutionKey> keys = {{0, 0, 1, 0, 0, 1, 0},
                                          {0, 0, 1, 0, 0, 2, 0},
                                          {0, 0, 1, 0, 0, 3, 0},
                                          {0, 0, 1, 0, 1, 1, 1},
                                          {0, 0, 1, 0, 1, 2, 1}};
  EXPECT_THAT(Follow({"0", "1", "2", "3"}, keys, ids),
              ElementsAre("0", "1", "2", "own", "3"));
}

TEST(FollowReference, LeavesPhasesApartAndOtherPhasesAlone) {
  const std::vector<TensorId> ids = {
      Layer("b"), Layer("a"), Layer("y", Role::kGradReduced),
      Layer("x", Role::kGradReduced), Layer("c", Role::kOutput)};
  const std::vector<ExecutionKey> keys = {{0, 0, 1, 0, 0, 1, 0},
                                          {0, 0, 1, 0, 1, 1, 1},
                                          {0, 0, 5, 0, 0, 1, 0},
                                          {0, 0, 5, 0, 1, 1, 1},
                                          {1, 0, 1, 0, 0, 1, 0}};
  EXPECT_THAT(Follow({"c", "a", "b", "x", "y"}, keys, ids),
              ElementsAre("a", "b", "y", "x", "c"));
}

}  // namespace
}  // namespace ttrace::execution_order_test
