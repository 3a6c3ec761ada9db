#include "src/localize/carried_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/localize/testing/isolated_run.h"

namespace ttrace::carried_buffers_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CarriedBuffers, AreNoCulpritsByThemselves) {
  IsolatedRun run;
  run.Carried("layers.0.mlp.mean", 5);
  const Agreement joined = run.Join();
  EXPECT_TRUE(joined.culprits.empty());
  EXPECT_EQ(joined.downstream, 0);
}

TEST(CarriedBuffers, AreBlamedForWhatTheirModuleComputesWithThem) {
  IsolatedRun run;
  run.Carried("layers.0.mlp.mean", 5);
  run.Carried("layers.0.mlp.scale", 7);
  run.EndToEnd("layers.0.mlp", Role::kOutput, "", 1);
  EXPECT_EQ(run.Flow().culprits.at(0).fqn, "layers.0.mlp.scale");
  run.Alone("layers.0.mlp", Role::kOutput, "", 1);
  EXPECT_EQ(run.Isolate().culprits.at(0).fqn, "layers.0.mlp.scale");
  const Agreement joined = run.Join();
  ASSERT_EQ(joined.culprits.size(), 1u);
  const Culprit& first = joined.culprits[0];
  EXPECT_EQ(first.tensor.role, Role::kBuffer);
  EXPECT_EQ(first.headroom, 7) << "of the one that is furthest out";
  EXPECT_EQ(first.iteration, 1);
  EXPECT_EQ(first.affected.count, 1);
  EXPECT_THAT(first.found_by, ElementsAre("dataflow", "isolation"));
  EXPECT_THAT(first.where, HasSubstr("layers.0.mlp computes with it"));
}

// The code of a container may hand it to a module.
TEST(CarriedBuffers, AreBlamedForCodeBetweenModules) {
  IsolatedRun run;
  run.Carried("mean", 5);
  run.EndToEnd("embedding", Role::kInput, "", 1);
  run.EndToEnd("embedding", Role::kOutput, "", 1);
  ASSERT_EQ(run.Flow().culprits.size(), 1u);
  EXPECT_EQ(run.Flow().culprits[0].fqn, "mean");
}

TEST(CarriedBuffers, ExplainNoOtherModuleNoOtherIterationAndNoBackward) {
  IsolatedRun run;
  run.Carried("layers.0.mlp.mean", 5);
  run.EndToEnd("layers.1.mlp", Role::kOutput, "", 1);
  EXPECT_EQ(run.Flow().culprits.at(0).fqn, "layers.1.mlp");
  IsolatedRun before;
  before.Carried("layers.0.mlp.mean", 5);
  before.EndToEnd("layers.0.mlp", Role::kOutput, "", 0);
  EXPECT_EQ(before.Flow().culprits.at(0).fqn, "layers.0.mlp");
  IsolatedRun backward;
  backward.Carried("layers.0.mlp.mean", 5);
  backward.EndToEnd("layers.0.mlp", Role::kGradInput, "", 1);
  EXPECT_EQ(backward.Flow().culprits.at(0).fqn, "layers.0.mlp");
}

}  // namespace
}  // namespace ttrace::carried_buffers_test
