// Comparing rows that a router chose: joined by token, whatever the mesh.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "src/align/testing/routed_run.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/layout_overlap.h"
#include "src/compare/row_map.h"
#include "src/compare/tile.h"

namespace ttrace::routed_rows_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Loaded {
 public:
  explicit Loaded(const RoutedRun& run) {
    run.Write(folder_.path());
    catalog_ = std::make_unique<Catalog>(OrDie(Trace::Open(folder_.path())));
  }
  const TensorPieces& Of(int expert, Role role = Role::kOutput) const {
    TensorId id;
    id.fqn = "moe.experts." + std::to_string(expert);
    id.role = role;
    id.arg = role == Role::kInput || role == Role::kGradInput ? "x" : "0";
    id.pass = role == Role::kInput || role == Role::kOutput ? Pass::kForward
                                                            : Pass::kBackward;
    return *catalog_->Find("real", id);
  }

 private:
  ScratchFolder folder_;
  std::unique_ptr<Catalog> catalog_;
};

struct Mesh {
  int dp, cp, tp;
  int64_t rows;
};
const std::vector<Mesh> kMeshes = {{1, 1, 1, 1}, {1, 1, 1, 4}, {2, 1, 1, 1},
                                   {2, 1, 1, 2}, {1, 2, 1, 2}, {1, 1, 2, 2},
                                   {2, 1, 2, 1}, {2, 2, 1, 1}, {4, 1, 1, 1}};

RoutedRun On(const Mesh& mesh) {
  RoutedRun run;
  run.dp = mesh.dp;
  run.cp = mesh.cp;
  run.tp = mesh.tp;
  run.rows_of_a_batch = mesh.rows;
  return run;
}

TEST(RoutedComparison, JoinsByTokenOverAnyMeshes) {
  const Loaded reference(On({1, 1, 1, 4}));
  for (const Mesh& mesh : kMeshes) {
    const Loaded candidate(On(mesh));
    for (const auto& [r, c] :
         {std::pair(&reference, &candidate), {&candidate, &reference}}) {
      for (int expert = 0; expert < RoutedRun::kExperts; ++expert) {
        for (const Role role : {Role::kInput, Role::kOutput, Role::kGradOutput,
                                Role::kGradInput}) {
          const TensorComparison compared =
              OrDie(CompareTensor(r->Of(expert, role), c->Of(expert, role)));
          EXPECT_TRUE(compared.total.bitwise_equal());
          EXPECT_TRUE(compared.complete());
          EXPECT_EQ(compared.common_gap, 0);
          ASSERT_TRUE(compared.routed);
          EXPECT_GT(compared.routed->reference, 0);
          EXPECT_EQ(compared.routed->only_reference, 0);
          EXPECT_EQ(compared.routed->only_candidate, 0);
          EXPECT_EQ(compared.total.count,
                    compared.routed->reference * RoutedRun::kHidden);
        }
      }
    }
  }
}

TEST(RoutedComparison, OtherTensorsHaveNoTokens) {
  RoutedRun run;
  run.change = [](RoutedPiece* piece) {
    if (piece->spec.routed) return false;
    return true;
  };
  const ScratchFolder folder;
  run.Write(folder.path());
  const Catalog catalog(OrDie(Trace::Open(folder.path())));
  TensorId id;
  id.fqn = "moe";
  id.arg = "0";
  const TensorPieces& pieces = *catalog.Find("real", id);
  EXPECT_FALSE(OrDie(CompareTensor(pieces, pieces)).routed);
}

TEST(RoutedComparison, ARowInTheWrongSlotIsWrongOnItsRank) {
  const Loaded reference(On({1, 1, 1, 4}));
  RoutedRun run = On({2, 1, 1, 2});
  run.change = [](RoutedPiece* piece) {
    if (piece->rank == 1 && piece->spec.fqn == "moe.experts.3" &&
        piece->spec.role == Role::kOutput) {
      std::swap_ranges(piece->values.begin(),
                       piece->values.begin() + RoutedRun::kHidden,
                       piece->values.begin() + 2 * RoutedRun::kHidden);
    }
    return true;
  };
  const Loaded candidate(run);
  for (int expert = 0; expert < RoutedRun::kExperts; ++expert) {
    const TensorComparison compared =
        OrDie(CompareTensor(reference.Of(expert), candidate.Of(expert)));
    EXPECT_TRUE(compared.complete());
    EXPECT_EQ(compared.total.mismatched,
              expert == 3 ? 2 * RoutedRun::kHidden : 0);
    for (const InstanceStats& part : compared.instances) {
      if (part.stats.bitwise_equal()) continue;
      EXPECT_THAT(part.ranks, ElementsAre(1));
    }
  }
}

TEST(RoutedComparison, TokensOfOneSideAreCountedAndNoGaps) {
  const Loaded reference(On({1, 1, 1, 2}));
  RoutedRun run = On({2, 1, 2, 1});
  const int64_t token = 11;
  const std::set<int> before = RoutedRun::Route(token);
  const int dropped = *before.begin();
  int added = 0;
  while (before.contains(added)) ++added;
  run.routing = [&](const Leg&, int64_t t) {
    std::set<int> experts = RoutedRun::Route(t);
    if (t == token) {
      experts.erase(dropped);
      experts.insert(added);
    }
    return experts;
  };
  const Loaded candidate(run);
  for (int expert = 0; expert < RoutedRun::kExperts; ++expert) {
    const TensorComparison compared =
        OrDie(CompareTensor(reference.Of(expert), candidate.Of(expert)));
    EXPECT_TRUE(compared.complete());
    EXPECT_TRUE(compared.total.bitwise_equal());
    EXPECT_EQ(compared.routed->only_reference, expert == dropped ? 1 : 0);
    EXPECT_EQ(compared.routed->only_candidate, expert == added ? 1 : 0);
    EXPECT_EQ(compared.total.count,
              (compared.routed->reference - compared.routed->only_reference) *
                  RoutedRun::kHidden);
  }
}

TEST(RoutedComparison, WhatWasSentAndIsNotHeldIsAGap) {
  const Loaded whole(On({1, 1, 1, 4}));
  RoutedRun run = On({2, 1, 1, 1});
  int64_t rows = 0;
  run.change = [&](RoutedPiece* piece) {
    if (piece->micro_batch == 2 && piece->spec.fqn == "moe.experts.1" &&
        piece->spec.role == Role::kOutput) {
      rows = piece->spec.local_shape[0];
      return false;
    }
    return true;
  };
  const Loaded lacking(run);
  ASSERT_GT(rows, 0);
  const TensorComparison forth =
      OrDie(CompareTensor(whole.Of(1), lacking.Of(1)));
  EXPECT_EQ(forth.candidate_gap, rows * RoutedRun::kHidden);
  EXPECT_EQ(forth.reference_gap, 0);
  EXPECT_EQ(forth.routed->only_reference, 0);
  const TensorComparison back =
      OrDie(CompareTensor(lacking.Of(1), whole.Of(1)));
  EXPECT_EQ(back.candidate_gap, 0);
  EXPECT_EQ(back.reference_gap, rows * RoutedRun::kHidden);
}

TEST(RoutedComparison, RowsOfShuffledDataAreFoundByTheirContent) {
  const Loaded reference(On({1, 1, 1, 4}));
  RoutedRun run = On({2, 1, 1, 1});
  const RowMap map = {{2, 0, 3, 1}};
  run.row_of = [&](int64_t row) {
    return map.to_reference[static_cast<size_t>(row)];
  };
  const Loaded candidate(run);
  CompareOptions options;
  options.rows = &map;
  for (int expert = 0; expert < RoutedRun::kExperts; ++expert) {
    const TensorComparison compared = OrDie(
        CompareTensor(reference.Of(expert), candidate.Of(expert), options));
    EXPECT_TRUE(compared.total.bitwise_equal());
    EXPECT_TRUE(compared.complete());
    EXPECT_EQ(compared.routed->only_candidate, 0);
    EXPECT_FALSE(
        OrDie(CompareTensor(reference.Of(expert), candidate.Of(expert)))
            .total.bitwise_equal());
  }
  const RowMap other = {{0, 1, 2}};
  options.rows = &other;
  const auto bad = CompareTensor(reference.Of(0), candidate.Of(0), options);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code(), ErrorCode::kInvalidArgument);
}

TEST(RoutedComparison, WithoutAPlaceNothingIsCompared) {
  const Loaded good(On({1, 1, 1, 4}));
  RoutedRun run = On({1, 1, 1, 4});
  run.group_notes = false;
  const Loaded bad(run);
  for (const auto& [r, c] : {std::pair(&good, &bad), {&bad, &good}}) {
    const auto compared = CompareTensor(r->Of(0), c->Of(0));
    ASSERT_FALSE(compared.ok());
    EXPECT_EQ(compared.error().code(), ErrorCode::kIncomparable);
    EXPECT_THAT(compared.error().message(), HasSubstr("no note names"));
  }
  EXPECT_FALSE(SumOfSquares(bad.Of(0)).ok());
  EXPECT_FALSE(CompareReplicas(bad.Of(0)).ok());
}

TEST(RoutedComparison, RowsOfAnotherExpertOrOfNoneAreNotCompared) {
  const Loaded reference(On({1, 1, 1, 4}));
  const auto other = CompareTensor(reference.Of(0), reference.Of(1));
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code(), ErrorCode::kIncomparable);
  EXPECT_THAT(other.error().message(), HasSubstr("rows of expert 0 in the"));
  RoutedRun run = On({1, 1, 1, 4});
  run.change = [](RoutedPiece* piece) {
    if (piece->spec.routed && piece->spec.fqn == "moe.experts.0") {
      piece->spec.routed.reset();
      piece->spec.local_shape[0] = RoutedRun::kTokens;
      piece->values.assign(RoutedRun::kTokens * RoutedRun::kHidden, 0);
    }
    return true;
  };
  const Loaded plain(run);
  EXPECT_FALSE(CompareTensor(reference.Of(0), plain.Of(0)).ok());
  EXPECT_FALSE(CompareTensor(plain.Of(0), reference.Of(0)).ok());
}

TEST(RoutedComparison, NoiseIsMeasuredInTheSameRegions) {
  const Loaded reference(On({1, 1, 1, 4}));
  RoutedRun noisy = On({1, 1, 1, 4});
  noisy.noise = 0x1p-20F;
  const Loaded noise(noisy);
  const Loaded candidate(On({2, 1, 1, 1}));
  const TensorComparison compared =
      OrDie(CompareTensor(reference.Of(1), candidate.Of(1)));
  const auto within =
      OrDie(CompareWithin(reference.Of(1), noise.Of(1), compared.regions));
  ASSERT_EQ(within.size(), compared.regions.size());
  for (size_t i = 0; i < within.size(); ++i) {
    EXPECT_EQ(within[i].count, compared.regions[i].local_count());
  }
}

TEST(MapTokens, MovesWholeRows) {
  DimLayout tokens = OrDie(ListIndices(std::vector<int64_t>{0, 1, 5, 2}, 6));
  ASSERT_TRUE(MapTokens({{1, 0}}, &tokens).ok());
  EXPECT_EQ(tokens.segments, (std::vector<Segment>{{3, 2}, {2, 1}, {5, 1}}));
  EXPECT_FALSE(MapTokens({{0, 1, 2, 3}}, &tokens).ok());
  EXPECT_FALSE(MapTokens({{}}, &tokens).ok());
  EXPECT_FALSE(MapTokens({{0, 0}}, &tokens).ok());
}

// Rows in no order are as many segments: what squares with their number would
// not end. (A million take a second.)
TEST(RoutedComparison, ManyRowsInNoOrderTakeNoLonger) {
  constexpr int64_t kMany = 200'000;
  std::vector<int64_t> order(2 * kMany);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 rng(1);
  std::shuffle(order.begin(), order.end(), rng);
  const auto layout = [&](int64_t from) {
    Layout out;
    out.dims.push_back(
        OrDie(ListIndices(std::span(order).subspan(static_cast<size_t>(from),
                                                   static_cast<size_t>(kMany)),
                          2 * kMany)));
    out.dims.push_back({{{0, 8}}, 8});
    return out;
  };
  const Layout a = layout(0);
  const Layout b = layout(kMany / 2);
  const LayoutOverlap overlap = MeasureOverlap({&a}, {&b});
  EXPECT_EQ(overlap.both, kMany / 2 * 8);
  int64_t elements = 0;
  const Status status = ForEachTile(
      a, b, 1 << 16,
      [&](const Tile& tile) {
        elements += tile.count();
        return Status(Done{});
      },
      &b);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(elements, kMany / 2 * 8);
}

}  // namespace
}  // namespace ttrace::routed_rows_test
