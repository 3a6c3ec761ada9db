#include "src/measure/padding_gradient.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "src/experiment/side.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::padding_gradient_test {
namespace {

// Of a gradient of these values, of which the other run has those whose squares
// sum up to `common`.
double Padding(const std::vector<float>& values, double common) {
  ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", true));
  const auto writer = OpenRank(folder.path(), 0, 1);
  OrDie(AppendFloats(*writer, "layer", values));
  OrDie(writer->Seal(0, "real"));
  OrDie(writer->Close(true, ""));
  const Side side = OrDie(Side::Open(folder.path(), {}));
  return OrDie(GradientOfPadding(side.real().begin()->second, common));
}

TEST(GradientOfPadding, IsRelativeToThatOfTheData) {
  EXPECT_DOUBLE_EQ(Padding({3, 4, 0, 2.5}, 25), 0.5);
}

TEST(GradientOfPadding, IsZeroWhereAllIsCommon) {
  EXPECT_EQ(Padding({3, 4, 0, 0}, 25), 0);
  // But for the rounding of either sum.
  EXPECT_EQ(Padding({3, 4, 0, 0}, 25 - 25e-7), 0);
}

TEST(GradientOfPadding, IsNotKnownOfWhatIsNotFinite) {
  EXPECT_EQ(Padding({3, 4, std::numeric_limits<float>::infinity()}, 25), 0);
}

}  // namespace
}  // namespace ttrace::padding_gradient_test
