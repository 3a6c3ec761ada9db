// Places in a module that does what other runs have in two: layers.N.norm is
// part of layers.N.attn.qkv, and what passes between them is not recorded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/localize/testing/isolated_run.h"

namespace ttrace::fused_modules_test {
namespace {

using testing::ElementsAre;

constexpr const char* kNorm = "layers.1.norm";
constexpr const char* kLinear = "layers.1.attn.qkv";

std::vector<std::string> Alone(const IsolatedRun& run) {
  std::vector<std::string> out;
  for (const Culprit& culprit : run.Isolate().culprits) {
    out.push_back(culprit.fqn);
  }
  return out;
}

std::vector<std::string> ByDataflow(const IsolatedRun& run) {
  std::vector<std::string> out;
  for (const Culprit& culprit : run.Flow().culprits) out.push_back(culprit.fqn);
  return out;
}

TEST(FusedModules, ACleanRunHasNoCulprit) {
  const IsolatedRun run = IsolatedRun().FuseNorms();
  EXPECT_TRUE(Alone(run).empty());
  EXPECT_TRUE(ByDataflow(run).empty());
}

TEST(FusedModules, AWrongForwardExplainsAllGradientsOfThePiece) {
  IsolatedRun run = IsolatedRun().FuseNorms();
  run.Alone(kNorm, Role::kGradInput)
      .Alone("layers.1.norm.weight", Role::kGradLocal);
  EXPECT_THAT(Alone(run), ElementsAre(kLinear));
  EXPECT_EQ(run.Isolate().culprits[0].direction, Direction::kBackward);
  run.Alone(kLinear, Role::kOutput);
  EXPECT_THAT(Alone(run), ElementsAre(kLinear));
  EXPECT_EQ(run.Isolate().culprits[0].direction, Direction::kForward);
}

TEST(FusedModules, AWrongInputGradientExplainsTheGradientOfTheWeight) {
  IsolatedRun run = IsolatedRun().FuseNorms();
  run.Alone("layers.1.attn.qkv.weight", Role::kGradLocal);
  EXPECT_THAT(Alone(run), ElementsAre("layers.1.attn.qkv.weight"));
  run.Alone(kNorm, Role::kGradInput);
  EXPECT_THAT(Alone(run), ElementsAre(kLinear));
}

TEST(FusedModules, AnOutputIsMadeOfWhatTheNormIsGiven) {
  // Something else is out before, so that the input must speak for the output.
  IsolatedRun run = IsolatedRun().FuseNorms();
  run.EndToEnd("layers.0.attn.core", Role::kOutput)
      .EndToEnd(kLinear, Role::kOutput);
  EXPECT_THAT(ByDataflow(run), ElementsAre("layers.0.attn.core", kLinear));
  run.EndToEnd(kNorm, Role::kInput);
  EXPECT_THAT(ByDataflow(run), ElementsAre("layers.0.attn.core"));
}

TEST(FusedModules, AnInputsGradientIsMadeOfWhatArrivesAtTheLinear) {
  IsolatedRun run = IsolatedRun().FuseNorms();
  run.EndToEnd("layers.1.mlp", Role::kGradInput)
      .EndToEnd(kNorm, Role::kGradInput);
  EXPECT_THAT(ByDataflow(run), ElementsAre("layers.1.mlp", kLinear));
  run.EndToEnd(kLinear, Role::kGradOutput);
  EXPECT_THAT(ByDataflow(run), ElementsAre("layers.1.mlp"));
}

TEST(FusedModules, TheNormsOwnGradientIsMadeOfWhatArrivesAtTheLinear) {
  const std::string gain = "layers.1.norm.weight";
  IsolatedRun run = IsolatedRun().FuseNorms();
  run.EndToEnd("layers.1.mlp", Role::kGradInput)
      .EndToEnd(gain, Role::kGradLocal);
  EXPECT_THAT(ByDataflow(run), ElementsAre("layers.1.mlp", gain));
  run.EndToEnd(kLinear, Role::kGradOutput);
  EXPECT_THAT(ByDataflow(run), ElementsAre("layers.1.mlp"));
}

}  // namespace
}  // namespace ttrace::fused_modules_test
