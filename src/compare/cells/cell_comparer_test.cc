#include "src/compare/cells/cell_comparer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "src/compare/compare_kernel.h"
#include "src/numeric/fixed_vectors.h"
#include "src/numeric/narrow.h"
#include "src/numeric/widen.h"

namespace ttrace::cell_comparer_test {
namespace {

constexpr double kScale = 0.5;

Layout WholeOf(const Shape& shape) {
  Layout layout;
  for (const int64_t size : shape) {
    layout.dims.push_back({{{0, size}}, size});
  }
  return layout;
}

std::vector<float> Normal(int64_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = normal(rng);
  return out;
}

std::vector<float> Noisy(const std::vector<float>& values, uint32_t seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> noise(-0.01F, 0.01F);
  std::vector<float> out = values;
  for (float& x : out) x *= 1 + noise(rng);
  return out;
}

std::vector<uint16_t> Narrowed(DType dtype, const std::vector<float>& values) {
  std::vector<uint16_t> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    Narrow(dtype, values[i], reinterpret_cast<std::byte*>(&out[i]));
  }
  return out;
}

std::vector<float> Widened(DType dtype, const std::vector<uint16_t>& values) {
  std::vector<float> out;
  for (const uint16_t x : values) {
    out.push_back(static_cast<float>(
        WidenElement(dtype, reinterpret_cast<const std::byte*>(&x))));
  }
  return out;
}

template <class T>
CellTable TableOf(DType dtype, const Layout& layout, const std::vector<T>& ref,
                  const std::vector<T>& cand, double scale = kScale,
                  int64_t tile = 1 << 30) {
  CellComparer comparer(dtype, layout, scale);
  const auto total = static_cast<int64_t>(ref.size());
  for (int64_t at = 0; at < total; at += tile) {
    comparer.Add(reinterpret_cast<const std::byte*>(ref.data() + at),
                 reinterpret_cast<const std::byte*>(cand.data() + at),
                 std::min(tile, total - at));
  }
  return comparer.Take();
}

// Element by element, in double, with nothing but the grid in common.
class Oracle {
 public:
  Oracle(const Layout& layout, const std::vector<float>& ref,
         const std::vector<float>& cand, double scale) {
    const Shape shape = layout.local_shape();
    const CellGrid grid = GridOf(shape);
    table_.element_scale = scale;
    table_.cells.resize(static_cast<size_t>(grid.cells()));
    std::map<int64_t, double> blocks;
    std::map<int64_t, std::vector<int64_t>> cells_of_block;
    std::vector<int64_t> at(shape.size(), 0);
    int64_t block = -1;
    int64_t before = -2;
    for (size_t i = 0; i < ref.size(); ++i) {
      int64_t cell = 0;
      int64_t logical = 0;
      for (size_t d = 0; d < shape.size(); ++d) {
        int64_t k = 0;
        while (grid.Begin(d, k + 1) <= at[d]) ++k;
        cell = cell * grid.parts[d] + k;
        logical =
            logical * layout.dims[d].global_size + Global(layout, d, at[d]);
      }
      // A gap in the tensor ends a block, too.
      if (logical != before + 1 || logical % kCompareBlock == 0) ++block;
      before = logical;
      Add(ref[i], cand[i], scale, &table_.cells[static_cast<size_t>(cell)]);
      const double d = double{cand[i]} - double{ref[i]};
      if (std::isfinite(d)) blocks[block] += d * d;
      cells_of_block[block].push_back(cell);
      for (size_t d2 = shape.size(); d2-- > 0;) {
        if (++at[d2] < shape[d2]) break;
        at[d2] = 0;
      }
    }
    for (const auto& [number, cells] : cells_of_block) {
      for (const int64_t cell : cells) {
        double& largest = table_.cells[static_cast<size_t>(cell)].max_block;
        largest = std::max(largest, blocks[number]);
      }
    }
  }
  const CellTable& table() const { return table_; }

 private:
  static int64_t Global(const Layout& layout, size_t d, int64_t local) {
    for (const Segment& s : layout.dims[d].segments) {
      if (local < s.size) return s.begin + local;
      local -= s.size;
    }
    return -1;
  }
  static void Add(float ref, float cand, double scale, CellSums* cell) {
    if (std::bit_cast<uint32_t>(ref) != std::bit_cast<uint32_t>(cand)) {
      ++cell->mismatched;
    }
    if (!std::isfinite(ref) || !std::isfinite(cand)) {
      cell->nonfinite_ref += !std::isfinite(ref);
      cell->nonfinite_cand += !std::isfinite(cand);
      cell->nonfinite_differ += std::isfinite(ref) != std::isfinite(cand);
      return;
    }
    const double r = ref;
    const double d = double{cand} - r;
    cell->err_err += d * d;
    cell->err_ref += d * r;
    cell->ref_ref += r * r;
    cell->max_err = std::max(cell->max_err, std::fabs(d));
    cell->max_ref = std::max(cell->max_ref, std::fabs(r));
    if (scale > 0) {
      const double q = std::fabs(d) / (std::fabs(r) + scale);
      cell->elem_elem += q * q;
      cell->max_elem = std::max(cell->max_elem, q);
    }
  }

  CellTable table_;
};

void ExpectNear(double got, double want, double size, const std::string& what) {
  EXPECT_LE(std::fabs(got - want), 2e-6 * std::fabs(size) + 1e-300)
      << what << ": " << got << " for " << want;
}

void ExpectSame(const CellTable& got, const CellTable& want) {
  ASSERT_EQ(got.cells.size(), want.cells.size());
  for (size_t i = 0; i < got.cells.size(); ++i) {
    const CellSums& g = got.cells[i];
    const CellSums& w = want.cells[i];
    const std::string cell = "cell " + std::to_string(i) + " ";
    ExpectNear(g.err_err, w.err_err, w.err_err, cell + "err_err");
    ExpectNear(g.err_ref, w.err_ref, std::sqrt(w.err_err * w.ref_ref),
               cell + "err_ref");
    ExpectNear(g.ref_ref, w.ref_ref, w.ref_ref, cell + "ref_ref");
    ExpectNear(g.elem_elem, w.elem_elem, w.elem_elem, cell + "elem_elem");
    ExpectNear(g.max_err, w.max_err, w.max_err, cell + "max_err");
    ExpectNear(g.max_ref, w.max_ref, w.max_ref, cell + "max_ref");
    ExpectNear(g.max_elem, w.max_elem, w.max_elem, cell + "max_elem");
    ExpectNear(g.max_block, w.max_block, w.max_block, cell + "max_block");
    EXPECT_EQ(g.mismatched, w.mismatched) << cell;
    EXPECT_EQ(g.nonfinite_ref, w.nonfinite_ref) << cell;
    EXPECT_EQ(g.nonfinite_cand, w.nonfinite_cand) << cell;
    EXPECT_EQ(g.nonfinite_differ, w.nonfinite_differ) << cell;
  }
}

// On every instruction set that this machine has.
class CellComparerOn : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {16384},      {20011},        {64, 512},      {128, 1, 384},
      {4, 64, 256}, {16, 8, 16, 9}, {331, 77},      {1, 40000},
      {40000, 1},   {8192, 3},      {2, 3, 5, 700}, {33, 1000},
  };
  return shapes;
}

TEST_P(CellComparerOn, SumsAreThoseOfTheElements) {
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(testing::PrintToString(shape));
    const Layout layout = WholeOf(shape);
    const auto ref = Normal(layout.local_count(), 1);
    const auto cand = Noisy(ref, 2);
    ExpectSame(TableOf(DType::kF32, layout, ref, cand),
               Oracle(layout, ref, cand, kScale).table());
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const auto ref16 = Narrowed(dtype, ref);
      const auto cand16 = Narrowed(dtype, cand);
      ExpectSame(
          TableOf(dtype, layout, ref16, cand16),
          Oracle(layout, Widened(dtype, ref16), Widened(dtype, cand16), kScale)
              .table());
    }
  }
}

TEST_P(CellComparerOn, WithoutAScaleElementsAreNotMeasured) {
  const Layout layout = WholeOf({64, 512});
  const auto ref = Normal(layout.local_count(), 1);
  const auto cand = Noisy(ref, 2);
  ExpectSame(TableOf(DType::kF32, layout, ref, cand, 0),
             Oracle(layout, ref, cand, 0).table());
}

TEST_P(CellComparerOn, PiecesOfATensorHaveTheirPlaceInItsBlocks) {
  Layout layout;  // A zigzag shard of rows, a middle shard of columns.
  layout.dims.push_back({{{32, 32}, {192, 32}}, 256});
  layout.dims.push_back({{{0, 2}}, 2});
  layout.dims.push_back({{{200, 300}}, 1000});
  const auto ref = Normal(layout.local_count(), 3);
  const auto cand = Noisy(ref, 4);
  ExpectSame(TableOf(DType::kF32, layout, ref, cand),
             Oracle(layout, ref, cand, kScale).table());
}

TEST_P(CellComparerOn, TilesChangeNoBit) {
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(testing::PrintToString(shape));
    Shape larger = shape;
    larger.front() *= 5;
    const Layout layout = WholeOf(larger);
    const auto ref = Normal(layout.local_count(), 5);
    auto cand = Noisy(ref, 6);
    const CellTable whole = TableOf(DType::kF32, layout, ref, cand);
    EXPECT_EQ(TableOf(DType::kF32, layout, ref, cand, kScale, kCellTile),
              whole);
    EXPECT_EQ(TableOf(DType::kF32, layout, ref, cand, kScale, 3 * kCellTile),
              whole);
    cand[cand.size() / 2] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(TableOf(DType::kF32, layout, ref, cand, kScale, kCellTile),
              TableOf(DType::kF32, layout, ref, cand));
  }
}

TEST_P(CellComparerOn, WhatFp32CannotSquareIsDoneInDouble) {
  const Layout layout = WholeOf({320, 512});
  const auto inf = std::numeric_limits<float>::infinity();
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  for (const float odd : {inf, -inf, nan, 1e30F, 1e-25F, 0.0F}) {
    SCOPED_TRACE(odd);
    auto ref = Normal(layout.local_count(), 7);
    auto cand = Noisy(ref, 8);
    // Single places, both sides, and a stretch that ends within a tile.
    ref[100] = cand[777] = odd;
    ref[50000] = cand[50000] = odd;
    for (size_t i = 70000; i < 75000; ++i) ref[i] = cand[i] = odd;
    if (odd == 1e-25F) {
      for (size_t i = 70000; i < 75000; ++i) cand[i] = 2 * odd;
    }
    ExpectSame(TableOf(DType::kF32, layout, ref, cand),
               Oracle(layout, ref, cand, kScale).table());
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, CellComparerOn,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

TEST(CellGrid, CutsWhatShardsCut) {
  const auto parts = [](const Shape& shape) { return GridOf(shape).parts; };
  EXPECT_EQ(parts({256, 1, 1024}), (std::vector<int64_t>{16, 1, 16}));
  EXPECT_EQ(parts({4096, 1024}), (std::vector<int64_t>{64, 64}));
  EXPECT_EQ(parts({16384}), (std::vector<int64_t>{16}));
  EXPECT_EQ(parts({65536, 16}), (std::vector<int64_t>{1024, 1}));
  EXPECT_EQ(parts({100}), (std::vector<int64_t>{1}));
  const CellGrid uneven = GridOf({3, 5, 4099});
  int64_t held = 0;
  for (int64_t k = 0; k < uneven.parts[2]; ++k) {
    EXPECT_LT(uneven.Begin(2, k), uneven.Begin(2, k + 1));
    held += uneven.Begin(2, k + 1) - uneven.Begin(2, k);
  }
  EXPECT_EQ(held, 4099);
}

TEST(CellTable, BytesAreThatTableAndNoOther) {
  CellTable table{0.25, std::vector<CellSums>(3)};
  table.cells[1].err_err = 7;
  table.cells[2].nonfinite_differ = 9;
  const auto bytes = EncodeCells(table);
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), EncodedCellBytes(3));
  const auto back = DecodeCells(bytes, 3);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, table);
  const auto other = DecodeCells(bytes, 4);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace ttrace::cell_comparer_test
