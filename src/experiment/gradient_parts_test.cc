#include "src/experiment/gradient_parts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "src/experiment/rounding_of_tensors.h"
#include "src/experiment/side.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::gradient_parts_test {
namespace {

// Two ranks with other rows times two with other columns, of which each notes
// 10^rank for its parts.
class GradientPartsTest : public testing::Test {
 protected:
  // Of what is declared so; zeros: nothing is known.
  GradientParts Parts(const PlacementMap& placements, Scale scale = {1, 1},
                      Role role = Role::kGradLocal) {
    const std::map<TensorId, GradientParts> all =
        PartsOfGradients(Recorded(placements, scale, role));
    return all.empty() ? GradientParts() : all.begin()->second;
  }

  Side Recorded(const PlacementMap& placements, Scale scale, Role role) {
    folder_ = std::make_unique<ScratchFolder>();
    OrDie(CreateTraceFolder(folder_->path(), "{}", true));
    for (int rank = 0; rank < 4; ++rank) Write(rank, placements, scale, role);
    return OrDie(Side::Open(folder_->path(), {}));
  }

  std::set<int> silent_;        // ranks that note nothing
  std::string noted_ = "1e{}";  // by rank

 private:
  void Write(int rank, const PlacementMap& placements, Scale scale, Role role) {
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = 4;
    meta.mesh.dims = {{"dp", 2}, {"tp", 2}};
    meta.coordinate = {rank / 2, rank % 2};
    const auto writer = OrDie(TraceWriter::Open(folder_->path(), meta));
    RecordSpec spec;
    spec.fqn = "head.weight";
    spec.role = role;
    spec.placements = placements;
    spec.scale = scale;
    spec.global_shape = {4};
    spec.local_shape = {4};
    for (const auto& [name, placement] : placements) {
      if (std::holds_alternative<Shard>(placement)) spec.local_shape = {2};
    }
    const std::vector<float> values(4, 1);
    Occurrence at;
    at.leg = "real";
    at.pass = Pass::kBackward;
    OrDie(writer->Append(spec, at,
                         {reinterpret_cast<const std::byte*>(values.data()),
                          RowMajorStrides(spec.local_shape)}));
    if (!silent_.contains(rank)) {
      const std::string square = fmt::format(fmt::runtime(noted_), rank);
      OrDie(writer->Note(
          "gradient_parts",
          fmt::format(R"({{"iteration": 0, "squares": {{"head.weight": {}}},)"
                      R"( "largest": {{"head.weight": {}}}}})",
                      square, 1 << rank)));
    }
    OrDie(writer->Seal(0, "real"));
    OrDie(writer->Close(true, ""));
  }

  std::unique_ptr<ScratchFolder> folder_;
};

TEST_F(GradientPartsTest, PiecesAndTermsAddUpAndCopiesCountOnce) {
  EXPECT_EQ(Parts({{"dp", Partial{}}, {"tp", Shard{0}}}).squares, 1111);
  EXPECT_EQ(Parts({{"dp", Partial{}}, {"tp", Partial{}}}).squares, 1111);
  EXPECT_EQ(Parts({{"dp", Partial{}}}).squares, 101);
  EXPECT_EQ(Parts({{"dp", Partial{}}, {"tp", Replicate{}}}).squares, 101);
}

TEST_F(GradientPartsTest, TheLargestElementsAddUpWhereTheyMayBeTheSame) {
  EXPECT_EQ(Parts({{"dp", Partial{}}, {"tp", Shard{0}}}).largest, 2 + 8);
  EXPECT_EQ(Parts({{"dp", Partial{}}, {"tp", Partial{}}}).largest, 15);
  EXPECT_EQ(Parts({{"dp", Partial{}}}).largest, 1 + 4);
}

TEST_F(GradientPartsTest, CountAsTheyAreMeant) {
  EXPECT_NEAR(Parts({{"dp", Partial{}}}, {1, 10}).squares, 1.01, 1e-12);
  EXPECT_NEAR(Parts({{"dp", Partial{}}}, {1, 10}).largest, 0.05, 1e-12);
  const PlacementMap mean = {{"dp", Partial{ReduceOp::kAvg}}};
  EXPECT_NEAR(Parts(mean).squares, 101.0 / 4, 1e-12);
}

TEST_F(GradientPartsTest, WhatARankDidNotNoteIsNotKnown) {
  silent_ = {2};
  EXPECT_EQ(Parts({{"dp", Partial{}}, {"tp", Shard{0}}}).squares, 0);
  silent_ = {0, 1, 2, 3};
  EXPECT_EQ(Parts({{"dp", Partial{}}}).squares, 0);
}

TEST_F(GradientPartsTest, WhatIsNoNumberIsNotKnown) {
  noted_ = "\"{}\"";
  EXPECT_EQ(Parts({{"dp", Partial{}}}).squares, 0);
  noted_ = "-1e{}";
  EXPECT_EQ(Parts({{"dp", Partial{}}}).squares, 0);
}

TEST_F(GradientPartsTest, AreOfLocalGradientsAndGoWithTheReducedOnes) {
  const PlacementMap terms = {{"dp", Partial{}}};
  EXPECT_EQ(Parts(terms, {1, 1}, Role::kParam).squares, 0);
  const Side side = Recorded(terms, {1, 1}, Role::kGradLocal);
  const RoundingOfTensors rounding(side, side);
  TensorId id = side.real().begin()->first;
  EXPECT_EQ(rounding.Of(id, true, false).reference_parts.squares, 101);
  id.role = Role::kGradReduced;
  EXPECT_EQ(rounding.Of(id, false, true).candidate_parts.squares, 101);
  id.role = Role::kParam;
  EXPECT_EQ(rounding.Of(id, false, false).candidate_parts.squares, 0);
}

}  // namespace
}  // namespace ttrace::gradient_parts_test
