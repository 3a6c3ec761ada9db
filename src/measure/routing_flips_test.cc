#include "src/measure/routing_flips.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "src/align/testing/routed_run.h"
#include "src/compare/row_map.h"
#include "src/measure/packed_facts.h"

namespace ttrace::routing_flips_test {
namespace {

class Loaded {
 public:
  explicit Loaded(const RoutedRun& run) {
    run.Write(folder_.path());
    catalog_ = std::make_unique<Catalog>(OrDie(Trace::Open(folder_.path())));
  }
  const TensorPieces& Of(const std::string& arg) const {
    TensorId id;
    id.fqn = "moe.router";
    id.arg = arg;
    return *catalog_->Find("real", id);
  }

 private:
  ScratchFolder folder_;
  std::unique_ptr<Catalog> catalog_;
};

// A token's scores: those given, by expert.
std::function<bool(RoutedPiece*)> Scores(int64_t token,
                                         const std::vector<float>& scores) {
  return [=](RoutedPiece* piece) {
    if (piece->spec.arg != kScoresArg) return true;
    for (size_t i = 0; i < piece->tokens.size(); ++i) {
      if (piece->tokens[i] != token) continue;
      for (size_t e = 0; e < scores.size(); ++e) {
        piece->values[i * scores.size() + e] = scores[e];
      }
    }
    return true;
  };
}

std::function<std::set<int>(const Leg&, int64_t)> Sends(
    int64_t token, const std::set<int>& experts) {
  return [=](const Leg&, int64_t t) {
    return t == token ? experts : RoutedRun::Route(t);
  };
}

double Rms(const TensorPieces& scores) {
  const SquareSum squares = OrDie(SumOfSquares(scores));
  return std::sqrt(squares.sum / static_cast<double>(squares.count));
}

// The flips of token 21, which the reference sends to `from`, the candidate to
// `to`.
RoutingFlips Flip(const std::set<int>& from, const std::set<int>& to,
                  const std::vector<float>& scores, double* rms = nullptr) {
  RoutedRun run;
  run.routing = Sends(21, from);
  run.change = Scores(21, scores);
  const Loaded reference(run);
  RoutedRun other;
  other.dp = 2;
  other.cp = 2;
  other.rows_of_a_batch = 1;
  other.routing = Sends(21, to);
  const Loaded candidate(other);
  if (rms != nullptr) *rms = Rms(reference.Of("scores"));
  return OrDie(MeasureFlips(reference.Of("1"), candidate.Of("1"),
                            reference.Of("scores"), {}));
}

TEST(RoutingFlips, EqualMapsHaveNone) {
  const RoutingFlips flips = Flip({1, 2}, {2, 1}, {0, 0, 0, 0});
  EXPECT_EQ(flips.tokens, RoutedRun::kTokens);
  EXPECT_TRUE(flips.flipped.empty());
}

TEST(RoutingFlips, TheMarginIsTheDistanceOfTheScores) {
  double c = 0;
  const RoutingFlips flips = Flip({1, 2}, {1, 3}, {0, 9, 0.5F, 0.25F}, &c);
  ASSERT_EQ(flips.flipped.size(), 1U);
  EXPECT_EQ(flips.flipped[0].token, 21);
  EXPECT_GT(c, 0);
  EXPECT_DOUBLE_EQ(flips.flipped[0].margin, 0.25 / (0.75 + 2 * c));
  // Whichever of the two the reference took.
  EXPECT_DOUBLE_EQ(Flip({1, 2}, {1, 3}, {0, 9, 0.25F, 0.5F}).flipped[0].margin,
                   flips.flipped[0].margin);
  EXPECT_EQ(Flip({1, 2}, {1, 3}, {0, 9, 0.5F, 0.5F}).flipped[0].margin, 0);
}

TEST(RoutingFlips, OfSeveralExpertsTheFarthestPairCounts) {
  double c = 0;
  const RoutingFlips flips = Flip({0, 1}, {2, 3}, {1, 0.5F, 0.5F, 0.25F}, &c);
  ASSERT_EQ(flips.flipped.size(), 1U);
  EXPECT_DOUBLE_EQ(flips.flipped[0].margin, 0.75 / (1.25 + 2 * c));
}

TEST(RoutingFlips, MoreOrFewerExpertsAreNoTie) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Flip({1, 2}, {1}, {1, 1, 1, 1}).flipped[0].margin, infinity);
  EXPECT_EQ(Flip({1}, {1, 2}, {1, 1, 1, 1}).flipped[0].margin, infinity);
  EXPECT_EQ(Flip({1}, {0, 2}, {1, 1, 1, 1}).flipped[0].margin, infinity);
  EXPECT_EQ(Flip({1}, {0}, {std::nanf(""), 1, 1, 1}).flipped[0].margin,
            infinity);
}

TEST(RoutingFlips, TokensThatASideLacksAreLeftOut) {
  RoutedRun run;
  const Loaded reference(run);
  RoutedRun other;
  other.rows_of_a_batch = 1;
  other.routing = Sends(21, {0});
  other.change = [](RoutedPiece* piece) {
    // Row 2, of token 21; row 3 lies there twice.
    if (piece->micro_batch == 2 && piece->spec.arg == "1") {
      piece->at.row_begin = 3;
    }
    return true;
  };
  const Loaded candidate(other);
  EXPECT_NE(RoutedRun::Route(21), (std::set<int>{0}));
  const RoutingFlips flips = OrDie(MeasureFlips(
      reference.Of("1"), candidate.Of("1"), reference.Of("scores"), {}));
  for (const FlippedToken& f : flips.flipped) {
    EXPECT_NE(f.token / RoutedRun::kSequence, 2);
  }
}

TEST(RoutingFlips, MapsThatAreNotWholeAreNotCompared) {
  RoutedRun other;
  other.rows_of_a_batch = 1;
  other.change = [](RoutedPiece* piece) { return piece->micro_batch != 2; };
  const Loaded whole{RoutedRun()};
  const Loaded part(other);
  for (const auto& [r, c] : {std::pair(&whole, &part), {&part, &whole}}) {
    const auto flips =
        MeasureFlips(r->Of("1"), c->Of("1"), whole.Of("scores"), {});
    ASSERT_FALSE(flips.ok());
    EXPECT_EQ(flips.error().code(), ErrorCode::kIncomparable);
  }
}

TEST(RoutingFlips, RowsAreMapped) {
  RoutedRun run;
  run.routing = Sends(21, {0, 1});
  const Loaded reference(run);
  RoutedRun other;
  const RowMap map = {{2, 0, 3, 1}};
  other.row_of = [&](int64_t row) {
    return map.to_reference[static_cast<size_t>(row)];
  };
  other.routing = Sends(21, {0, 1});
  const Loaded candidate(other);
  CompareOptions options;
  options.rows = &map;
  EXPECT_TRUE(OrDie(MeasureFlips(reference.Of("1"), candidate.Of("1"),
                                 reference.Of("scores"), options))
                  .flipped.empty());
}

TEST(RoutingFlips, OtherShapesAreNotCompared) {
  const Loaded run{RoutedRun()};
  const auto flips = MeasureFlips(run.Of("1"), run.Of("1"),
                                  [&]() -> const TensorPieces& {
                                    static const Loaded wide([] {
                                      RoutedRun other;
                                      other.change = [](RoutedPiece* piece) {
                                        if (piece->spec.arg == kScoresArg) {
                                          piece->spec.local_shape[2] =
                                              piece->spec.global_shape[2] = 2;
                                        }
                                        return true;
                                      };
                                      return other;
                                    }());
                                    return wide.Of("scores");
                                  }(),
                                  {});
  ASSERT_FALSE(flips.ok());
  EXPECT_EQ(flips.error().code(), ErrorCode::kIncomparable);
}

TEST(RoutingFlips, OnlyBooleansOfThreeDimensionsAreMaps) {
  const Loaded run{RoutedRun()};
  TensorId id;
  EXPECT_TRUE(MayBeRoutingMap(id, run.Of("1")));
  EXPECT_FALSE(MayBeRoutingMap(id, run.Of("scores")));
  id.role = Role::kInput;
  EXPECT_FALSE(MayBeRoutingMap(id, run.Of("1")));
}

TEST(RoutingFacts, AreGivenBackAsTheyWerePacked) {
  TensorFacts a;
  a.id.fqn = "moe.router";
  a.legs.resize(1);
  a.legs[0].usable = true;
  a.legs[0].flips = RoutingFlips{32, {{3, 0.5}, {9, 0.25}}};
  a.legs[0].candidate.routed = RoutedTokens{5, 6, 1, 2};
  a.unplaced = RoutingTrouble{true, 3, "moe.router", 2, 7, 6, ""};
  a.reference_unplaced = RoutingTrouble{false, 1, "moe.router", 2, 0, 0, "x"};
  const TensorFacts back = PackedFacts({a})[0];
  ASSERT_TRUE(back.legs[0].flips);
  EXPECT_EQ(back.legs[0].flips->tokens, 32);
  EXPECT_EQ(back.legs[0].flips->flipped[1].token, 9);
  EXPECT_EQ(back.legs[0].flips->flipped[1].margin, 0.25);
  EXPECT_EQ(back.legs[0].candidate.routed, a.legs[0].candidate.routed);
  EXPECT_EQ(back.unplaced, a.unplaced);
  EXPECT_EQ(back.reference_unplaced, a.reference_unplaced);
}

}  // namespace
}  // namespace ttrace::routing_flips_test
