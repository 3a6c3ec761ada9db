#include "src/in_place/element_scales.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/cells/compare_cells.h"
#include "src/measure/packed.h"
#include "src/trace/testing/scratch_trace.h"

namespace ttrace::element_scales_test {
namespace {

// [begin, end) of 8 rows of 4.
Layout Rows(int64_t begin, int64_t end) {
  return {{{{{begin, end - begin}}, 8}, {{{0, 4}}, 4}}};
}

RecordFields Piece(int64_t begin, int64_t end, int micro_batch = -1,
                   const std::string& fqn = "m", int iteration = 0) {
  RecordFields out;
  out.leg = "real";
  out.id.fqn = fqn;
  out.id.iteration = iteration;
  out.layout = Rows(begin, end);
  out.micro_batch = micro_batch;
  return out;
}

ErrorSums Squares(double sum) {
  ErrorSums out;
  out.sum_sq_ref.Add(sum);
  return out;
}

struct Said {
  RecordFields piece;
  double squares = 0;
  bool alone = false;
};

// What each of the ranks knows of `id` after all have told each other.
std::vector<std::optional<double>> Exchange(
    const std::vector<std::vector<Said>>& ranks,
    const TensorId& id = Piece(0, 8).id) {
  std::vector<ElementScales> scales(ranks.size());
  std::vector<std::string> messages;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Said& said : ranks[rank]) {
      scales[rank].Add(said.piece, Squares(said.squares), said.alone);
    }
    messages.push_back(scales[rank].Message());
  }
  const std::string answer = OrDie(AddUpScales(messages));
  std::vector<std::optional<double>> out;
  for (ElementScales& of : scales) {
    OrDie(of.Learn(answer));
    out.push_back(of.Find("real", id));
  }
  return out;
}

using Scales = std::vector<std::optional<double>>;

const std::optional<double> kNone;

TEST(ElementScales, ShardsAddUpWhateverTheOrderOfTheSum) {
  // In doubles 1 + 2^-53 + 2^-53 depends on the order.
  const double whole = ElementScaleOf(32 + 0x1p-47, 32);
  EXPECT_EQ(Exchange({{{Piece(0, 3), 32}},
                      {{Piece(3, 5), 0x1p-48}},
                      {{Piece(5, 8), 0x1p-48}}}),
            (Scales{whole, whole, whole}));
}

TEST(ElementScales, WhatARankHoldsInPiecesItKnowsByItself) {
  ElementScales scales;
  scales.Add(Piece(0, 4, 0), Squares(40), false);
  EXPECT_EQ(scales.Find("real", Piece(0, 8).id), kNone);
  scales.Add(Piece(4, 8, 1), Squares(24), false);
  EXPECT_EQ(scales.Find("real", Piece(0, 8).id), ElementScaleOf(64, 32));
  EXPECT_EQ(scales.Find("replay", Piece(0, 8).id), kNone);
  EXPECT_EQ(scales.Find("real", Piece(0, 8, -1, "other").id), kNone);
}

TEST(ElementScales, CopiesCountOnceAndTheFirstRanksCounts) {
  const double scale = ElementScaleOf(30, 32);
  EXPECT_EQ(Exchange({{{Piece(0, 4), 10}},
                      {{Piece(4, 8), 20}},
                      {{Piece(0, 4), 11}},
                      {{Piece(4, 8), 1e6}}}),
            (Scales{scale, scale, scale, scale}));
}

TEST(ElementScales, CopiesOfMicroBatchesMayHaveComeInAnotherOrder) {
  const double scale = ElementScaleOf(10, 32);
  EXPECT_EQ(Exchange({{{Piece(0, 2, 0), 1}, {Piece(2, 4, 1), 2}},
                      {{Piece(4, 6, 2), 3}, {Piece(6, 8, 3), 4}},
                      {{Piece(2, 4, 1), 2}, {Piece(0, 2, 0), 1}},
                      {{Piece(6, 8, 3), 4}, {Piece(4, 6, 2), 3}}}),
            (Scales{scale, scale, scale, scale}));
}

TEST(ElementScales, NothingIsKnownOfWhatMakesNoWhole) {
  EXPECT_EQ(Exchange({{{Piece(0, 3), 1}}, {{Piece(4, 8), 1}}}),
            (Scales{kNone, kNone}))
      << "a gap";
  EXPECT_EQ(Exchange({{{Piece(0, 5), 1}}, {{Piece(4, 8), 1}}}),
            (Scales{kNone, kNone}))
      << "an overlap";
  // As many elements as the whole has.
  EXPECT_EQ(
      Exchange({{{Piece(0, 3), 1}}, {{Piece(2, 5), 1}}, {{Piece(6, 8), 1}}}),
      (Scales{kNone, kNone, kNone}))
      << "both";
  EXPECT_EQ(Exchange({{{Piece(0, 4, 0), 1}}, {{Piece(0, 4, 1), 1}}}),
            (Scales{kNone, kNone}))
      << "one place in two micro-batches";
  auto larger = Piece(4, 8);
  larger.layout.dims[0].global_size = 9;
  EXPECT_EQ(Exchange({{{Piece(0, 4), 1}}, {{larger, 1}}}),
            (Scales{kNone, kNone}))
      << "two shapes";
  EXPECT_EQ(Exchange({{{Piece(0, 4), 1}}, {}}), (Scales{kNone, kNone}))
      << "a rank that has none";
}

TEST(ElementScales, APlaceThatARankRecordedTwiceIsNoPiece) {
  EXPECT_EQ(Exchange({{{Piece(0, 4, 0), 1}, {Piece(0, 4, 1), 1}},
                      {{Piece(4, 8, 0), 1}}}),
            (Scales{kNone, kNone}));
  ElementScales scales;
  scales.Add(Piece(0, 4, 0), Squares(1), false);
  scales.Add(Piece(0, 4, 1), Squares(1), false);
  EXPECT_EQ(scales.Find("real", Piece(0, 8).id), kNone);
}

TEST(ElementScales, ATermOfASumIsAPieceOnlyWhereItIsTheOnlyOne) {
  const double scale = ElementScaleOf(3, 32);
  EXPECT_EQ(Exchange({{{Piece(0, 4), 1, true}}, {{Piece(4, 8), 2, true}}}),
            (Scales{scale, scale}));
  EXPECT_EQ(Exchange({{{Piece(0, 2), 1, true}, {Piece(2, 4), 1, true}},
                      {{Piece(4, 8), 2, true}}}),
            (Scales{kNone, kNone}));
}

TEST(ElementScales, WhatIsNotFiniteHasNone) {
  ErrorSums infinite = Squares(1);
  infinite.nonfinite_ref = 1;
  std::vector<ElementScales> ranks(2);
  ranks[0].Add(Piece(0, 4), infinite, false);
  ranks[1].Add(Piece(4, 8), Squares(1), false);
  OrDie(ranks[1].Learn(
      OrDie(AddUpScales({ranks[0].Message(), ranks[1].Message()}))));
  EXPECT_EQ(ranks[1].Find("real", Piece(0, 8).id), 0);
}

TEST(ElementScales, OthersAreToldOnceAndOnlyOfWhatTheyHaveToKnow) {
  ElementScales scales;
  const std::string nothing = scales.Message();
  scales.Add(Piece(0, 4, 0), Squares(1), false);
  scales.Add(Piece(4, 8, 1), Squares(1), false);
  EXPECT_EQ(scales.Message(), nothing) << "it has all";
  scales.Add(Piece(0, 4, 0, "n"), Squares(1), false);
  EXPECT_NE(scales.Message(), nothing);
  EXPECT_EQ(scales.Message(), nothing);
}

TEST(ElementScales, WhatComesAfterOthersWereToldIsNotTheirs) {
  std::vector<ElementScales> ranks(2);
  ranks[0].Add(Piece(0, 4), Squares(1), false);
  ranks[1].Add(Piece(4, 8), Squares(1), false);
  const std::string answer =
      OrDie(AddUpScales({ranks[0].Message(), ranks[1].Message()}));
  ranks[0].Add(Piece(4, 6), Squares(1), false);
  for (ElementScales& rank : ranks) OrDie(rank.Learn(answer));
  EXPECT_EQ(ranks[0].Find("real", Piece(0, 8).id), kNone);
  EXPECT_EQ(ranks[1].Find("real", Piece(0, 8).id), ElementScaleOf(2, 32));
}

TEST(ElementScales, AnotherIterationBeginsAnew) {
  std::vector<ElementScales> ranks(2);
  const auto tell = [&](int iteration, double first) {
    ranks[0].Add(Piece(0, 4, -1, "m", iteration), Squares(first), false);
    ranks[1].Add(Piece(4, 8, -1, "m", iteration), Squares(1), false);
    const std::string answer =
        OrDie(AddUpScales({ranks[0].Message(), ranks[1].Message()}));
    OrDie(ranks[0].Learn(answer));
    return ranks[0].Find("real", Piece(0, 8, -1, "m", iteration).id);
  };
  EXPECT_EQ(tell(0, 1), ElementScaleOf(2, 32));
  EXPECT_EQ(tell(1, 7), ElementScaleOf(8, 32));
  EXPECT_EQ(ranks[0].Find("real", Piece(0, 8).id), kNone);
}

TEST(ElementScales, DamagedMessagesAreRefused) {
  ElementScales one;
  ElementScales two;
  one.Add(Piece(0, 4, 0), Squares(1.1), false);
  one.Add(Piece(0, 4, 0, "n"), Squares(1e-30), false);
  two.Add(Piece(4, 8, 0), Squares(2.2), false);
  const std::string good = one.Message();
  const std::string other = two.Message();
  const std::string answer = OrDie(AddUpScales({good, other}));
  for (size_t size = 0; size < good.size(); ++size) {
    const auto result = AddUpScales({other, good.substr(0, size)});
    ASSERT_FALSE(result.ok()) << size;
    EXPECT_EQ(result.error().code(), ErrorCode::kCorrupt);
    EXPECT_NE(result.error().message().find("rank 1"), std::string::npos);
  }
  EXPECT_FALSE(AddUpScales({good + good, other}).ok());
  EXPECT_FALSE(two.Learn(answer + answer).ok());
  for (size_t size = 0; size < answer.size(); ++size) {
    EXPECT_FALSE(two.Learn(answer.substr(0, size)).ok()) << size;
  }
  EXPECT_EQ(two.Find("real", Piece(0, 8).id), kNone);
  OrDie(two.Learn(answer));
  EXPECT_TRUE(two.Find("real", Piece(0, 8).id).has_value());
  // Any other byte gives some result.
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = good;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      const auto result = AddUpScales({changed, other});
      if (result.ok()) static_cast<void>(two.Learn(*result));
    }
  }
}

// A message that tells of one tensor of places number `places`.
std::string MessageOf(const Layout& layout, int places) {
  Packer out;
  out.Add(std::vector<std::vector<std::pair<Layout, int>>>{{{layout, -1}}});
  out.Add(1);  // as many tensors
  out.Add(uint64_t{7});
  out.Add(places);
  out.Add(true);
  out.Add(uint32_t{3});
  out.Add(std::vector<uint32_t>{5});
  return out.bytes();
}

TEST(ElementScales, PlacesThatNoPieceHasAreRefused) {
  EXPECT_TRUE(AddUpScales({MessageOf(Rows(0, 4), 0)}).ok());
  EXPECT_FALSE(AddUpScales({MessageOf(Rows(0, 4), 1)}).ok());
  EXPECT_FALSE(AddUpScales({MessageOf(Rows(0, 4), -1)}).ok());
  EXPECT_FALSE(AddUpScales({MessageOf(Rows(0, 9), 0)}).ok());
  EXPECT_FALSE(AddUpScales({MessageOf(Rows(-1, 3), 0)}).ok());
  EXPECT_FALSE(AddUpScales({MessageOf(Layout(), 0)}).ok());
  Layout twice = Rows(0, 4);
  twice.dims[0].segments.assign(3, {0, 4});
  EXPECT_FALSE(AddUpScales({MessageOf(twice, 0)}).ok());
}

TEST(ElementScales, AnAnswerOfNoScalesIsRefused) {
  for (const double scale : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    Packer out;
    out.Add(std::vector<std::pair<uint64_t, double>>{{7, scale}});
    EXPECT_FALSE(ElementScales().Learn(out.bytes()).ok()) << scale;
  }
}

}  // namespace
}  // namespace ttrace::element_scales_test
