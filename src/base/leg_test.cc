#include "ttrace/leg.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttrace::leg_test {
namespace {

std::string KindOf(const Leg& leg) {
  std::string out;
  if (leg.is_fp32()) out += 'f';
  if (leg.is_isolated()) out += 'i';
  if (leg.is_noise()) out += 'n';
  return out;
}

TEST(Leg, IsWhatItsNameSays) {
  EXPECT_EQ(KindOf("real"), "");
  EXPECT_EQ(KindOf("replay"), "");
  EXPECT_EQ(KindOf("noise.12"), "n");
  EXPECT_EQ(KindOf("isolated"), "i");
  EXPECT_EQ(KindOf("isolated.noise.1"), "in");
  EXPECT_EQ(KindOf("fp32"), "f");
  EXPECT_EQ(KindOf("fp32.noise.1"), "fn");
  EXPECT_EQ(KindOf("fp32.isolated"), "fi");
  EXPECT_EQ(KindOf("fp32.isolated.noise.2"), "fin");
}

// A later version may have legs that this one does not know.
TEST(Leg, OfAnUnknownNameIsWhatItsWordsSay) {
  EXPECT_EQ(KindOf("fp64.isolated.noise"), "in");
  EXPECT_EQ(KindOf("fp32.replay"), "f");
  EXPECT_EQ(KindOf("fp32x"), "");
  EXPECT_EQ(KindOf("noisy.noise2"), "");
  for (const std::string name : {"", ".", "..", "noise.", ".noise", "\xff\n"}) {
    EXPECT_EQ(Leg(name).name(), name);
    EXPECT_FALSE(Leg(name).is_isolated()) << name;
    EXPECT_FALSE(Leg(name).IsNoiseOf(kReal)) << name;
  }
}

TEST(Leg, IsNoiseOfTheLegThatItPerturbs) {
  EXPECT_TRUE(Leg("noise.1").IsNoiseOf(kReal));
  EXPECT_TRUE(Leg("noise.20").IsNoiseOf(kReal));
  EXPECT_TRUE(Leg("fp32.noise.1").IsNoiseOf(kFp32));
  EXPECT_TRUE(Leg("isolated.noise.1").IsNoiseOf(kIsolated));
  EXPECT_TRUE(Leg("fp32.isolated.noise.1").IsNoiseOf(kFp32Isolated));
  EXPECT_FALSE(Leg("fp32.noise.1").IsNoiseOf(kReal));
  EXPECT_FALSE(Leg("isolated.noise.1").IsNoiseOf(kReal));
  EXPECT_FALSE(Leg("fp32.isolated.noise.1").IsNoiseOf(kFp32));
  EXPECT_FALSE(Leg("noise").IsNoiseOf(kReal));
  EXPECT_FALSE(Leg("noise.").IsNoiseOf(kReal));
  EXPECT_FALSE(Leg("noise.1x").IsNoiseOf(kReal));
}

TEST(Leg, WithNoiseIsComparedWithTheOneWithoutOrItsReplay) {
  EXPECT_EQ(Leg("noise.1").Perturbed(), (std::vector<Leg>{kReal, kReplay}));
  EXPECT_EQ(Leg("fp32.noise.1").Perturbed(), std::vector<Leg>{kFp32});
  EXPECT_TRUE(kReal.Perturbed().empty());
  EXPECT_TRUE(kFp32.Perturbed().empty());
}

TEST(Leg, OrderIsThatOfNames) {
  EXPECT_LT(Leg("noise.10"), Leg("noise.2"));
  EXPECT_LT(kFp32, kReal);
  EXPECT_EQ(Leg(std::string("real")), kReal);
}

}  // namespace
}  // namespace ttrace::leg_test
