// What factors of gradients say of the unit of the loss; the whole way is in
// check/scaling_conventions_test.cc.

#include "src/experiment/loss_unit.h"

#include <gtest/gtest.h>

#include <utility>

namespace ttrace::loss_unit_test {
namespace {

// Two ranks that average a loss over all: half before, the same as stepped.
GradientFactors Halved() {
  GradientFactors out;
  out.before = 0.5 * (1 + 1e-8);
  out.stepped = 1 - 2e-8;
  out.step = 2 * (1 - 3e-8);
  out.step_tolerance = 3e-7;
  out.before_tolerance = 3e-7;
  out.parameters = out.alike = 5;
  return out;
}

TEST(UnitOfLoss, IsTheFactorThatTheReductionMakesUpFor) {
  EXPECT_EQ(UnitOfLoss(Halved()), (Scale{2, 1}));
}

TEST(UnitOfLoss, IsKnownThoughGradientsAreWrongInBothPlacesAlike) {
  GradientFactors wrong = Halved();
  wrong.before *= 0.97;
  wrong.stepped *= 0.97;
  EXPECT_EQ(UnitOfLoss(wrong), (Scale{2, 1}));
}

TEST(UnitOfLoss, IsNoneWhereWhatIsSteppedHasTheFactor) {
  GradientFactors fault = Halved();
  std::swap(fault.before, fault.stepped);
  fault.step = 0.5;
  EXPECT_FALSE(UnitOfLoss(fault));
  fault.before = fault.stepped = 0.5;
  fault.step = 1;
  EXPECT_FALSE(UnitOfLoss(fault));
}

TEST(UnitOfLoss, IsNoneWhereFewHaveTheFactor) {
  GradientFactors some = Halved();
  some.alike = 2;
  EXPECT_FALSE(UnitOfLoss(some));
}

TEST(UnitOfLoss, IsNoneOfASign) {
  GradientFactors turned = Halved();
  turned.before = -0.5;
  turned.step = -2;
  EXPECT_FALSE(UnitOfLoss(turned));
}

// What is reduced in bfloat16 tells 2 / 371 to three digits, what is not tells
// it to seven.
TEST(UnitOfLoss, IsReadWhereItIsToldBest) {
  GradientFactors coarse = Halved();
  coarse.step = 2.0 / 371 * (1 + 8e-4);
  coarse.step_tolerance = 2e-3;
  coarse.before = 371.0 / 2 * (1 - 1e-8);
  EXPECT_EQ(UnitOfLoss(coarse), (Scale{2, 371}));
  // A fault before the reduction does not move it.
  coarse.before *= 1.3;
  coarse.stepped *= 1.3;
  coarse.step = 2.0 / 371;
  coarse.step_tolerance = 1e-7;
  EXPECT_EQ(UnitOfLoss(coarse), (Scale{2, 371}));
}

}  // namespace
}  // namespace ttrace::loss_unit_test
