#include "src/compare/compare_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/numeric/fixed_vectors.h"
#include "src/numeric/instruction_set.h"
#include "src/numeric/widen.h"

namespace ttrace::compare_kernel_test {
namespace {

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes AsBytes(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!values.empty()) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  return bytes;
}

// Elements of one side, back to back, in the smallest allocation: reading past
// the end is an error that the address sanitizer sees.
struct Side {
  Bytes bytes;
  DType dtype = DType::kF32;
  double scale = 1;

  double At(size_t i) const {
    const auto size = static_cast<size_t>(Info(dtype).itemsize);
    return WidenElement(dtype, bytes.data() + i * size) * scale;
  }
  CompareOperand Operand() const { return {bytes.data(), dtype, 0, scale}; }
};

constexpr double kElementScale = 0.75;

ErrorStats Compare(const Side& ref, const Side& cand, size_t count,
                   uint64_t logical = 0, double element_scale = kElementScale) {
  ErrorSums sums;
  CompareRows(ref.Operand(), cand.Operand(),
              {1, static_cast<int64_t>(count), logical, 0, element_scale},
              &sums);
  return sums.Stats();
}

// The definition, written to be obviously right rather than fast.
ErrorStats ByDefinition(const Side& ref, const Side& cand, size_t count,
                        uint64_t logical = 0,
                        double element_scale = kElementScale) {
  const bool integers = !Info(ref.dtype).floating &&
                        !Info(cand.dtype).floating && ref.scale == 1 &&
                        cand.scale == 1;
  ErrorStats stats;
  std::vector<double> blocks(
      (static_cast<size_t>(logical) + count) / kCompareBlock + 1);
  for (size_t i = 0; i < count; ++i) {
    const double r = ref.At(i);
    const double c = cand.At(i);
    ++stats.count;
    if (!std::isfinite(r)) ++stats.nonfinite_ref;
    if (!std::isfinite(c)) ++stats.nonfinite_cand;
    if (std::isnan(r) && std::isnan(c)) continue;
    const bool equal = std::bit_cast<uint64_t>(r) == std::bit_cast<uint64_t>(c);
    if (!equal) ++stats.mismatched;
    if (!std::isfinite(r) || !std::isfinite(c)) {
      if (!equal) ++stats.nonfinite_differ;
      continue;
    }
    const double err = c - r;
    stats.sum_sq_err += err * err;
    stats.sum_err_ref += err * r;
    stats.sum_sq_ref += r * r;
    stats.max_abs_err = std::fmax(stats.max_abs_err, std::fabs(err));
    stats.max_abs_ref = std::fmax(stats.max_abs_ref, std::fabs(r));
    blocks[(static_cast<size_t>(logical) + i) / kCompareBlock] += err * err;
    if (integers || element_scale == 0) continue;
    const double elem = std::fabs(err) / (std::fabs(r) + element_scale);
    stats.max_elem = std::fmax(stats.max_elem, elem);
    stats.sum_sq_elem += elem * elem;
  }
  stats.max_block_sq_err = *std::max_element(blocks.begin(), blocks.end());
  return stats;
}

void ExpectAgree(const ErrorStats& got, const ErrorStats& want,
                 const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_EQ(got.count, want.count);
  EXPECT_EQ(got.mismatched, want.mismatched);
  EXPECT_EQ(got.nonfinite_ref, want.nonfinite_ref);
  EXPECT_EQ(got.nonfinite_cand, want.nonfinite_cand);
  EXPECT_EQ(got.nonfinite_differ, want.nonfinite_differ);
  constexpr double kRel = 1e-6;
  EXPECT_NEAR(got.sum_sq_err, want.sum_sq_err, kRel * want.sum_sq_err);
  EXPECT_NEAR(got.sum_sq_ref, want.sum_sq_ref, kRel * want.sum_sq_ref);
  // s1 cancels: its error is measured against what it is a product of.
  EXPECT_NEAR(got.sum_err_ref, want.sum_err_ref,
              kRel * std::sqrt(want.sum_sq_err) * std::sqrt(want.sum_sq_ref));
  EXPECT_NEAR(got.max_abs_err, want.max_abs_err, 0x1p-23 * want.max_abs_err);
  EXPECT_EQ(got.max_abs_ref, want.max_abs_ref);
  // Each of subtraction, addition of the scale, and division rounds once.
  EXPECT_NEAR(got.max_elem, want.max_elem, 0x1p-22 * want.max_elem);
  EXPECT_NEAR(got.sum_sq_elem, want.sum_sq_elem, kRel * want.sum_sq_elem);
  EXPECT_NEAR(got.max_block_sq_err, want.max_block_sq_err,
              kRel * want.max_block_sq_err);
}

// Random elements of moderate size in any dtype.
Side RandomSide(DType dtype, size_t count, std::mt19937& rng) {
  std::normal_distribution<double> normal(0, 3);
  Side side;
  side.dtype = dtype;
  const auto size = static_cast<size_t>(Info(dtype).itemsize);
  side.bytes.resize(count * size);
  for (size_t i = 0; i < count; ++i) {
    const double x = normal(rng);
    std::byte* to = side.bytes.data() + i * size;
    const auto store = [&](auto value) { std::memcpy(to, &value, size); };
    switch (dtype) {
      case DType::kBool:
        store(static_cast<uint8_t>(x > 0));
        break;
      case DType::kU8:
      case DType::kI8:
        store(static_cast<uint8_t>(static_cast<int>(x)));
        break;
      case DType::kI16:
        store(static_cast<int16_t>(1000 * x));
        break;
      case DType::kI32:
        store(static_cast<int32_t>(1e6 * x));
        break;
      case DType::kI64:
        store(static_cast<int64_t>(1e9 * x));
        break;
      case DType::kF16: {  // sign, exponent 2^-5..2^4, any fraction
        const auto bits = static_cast<uint32_t>(rng());
        store(static_cast<uint16_t>((bits & 0x83FF) |
                                    ((10 + (bits >> 16) % 10) << 10)));
        break;
      }
      case DType::kBF16:
        store(static_cast<uint16_t>(
            std::bit_cast<uint32_t>(static_cast<float>(x)) >> 16));
        break;
      case DType::kF32:
        store(static_cast<float>(x));
        break;
      case DType::kF64:
        store(x);
        break;
      case DType::kF8E4M3FN: {  // up to the exponent below that of NaN
        const auto bits = static_cast<uint32_t>(rng());
        store(static_cast<uint8_t>((bits & 0x87) | (((bits >> 16) % 15) << 3)));
        break;
      }
      case DType::kF8E5M2: {  // exponent 2^-5..2^4
        const auto bits = static_cast<uint32_t>(rng());
        store(static_cast<uint8_t>((bits & 0x83) |
                                   ((10 + (bits >> 16) % 10) << 2)));
        break;
      }
    }
  }
  return side;
}

// Most elements equal, as in practice.
Side MostlySame(const Side& ref, std::mt19937& rng) {
  Side cand = ref;
  const auto size = static_cast<size_t>(Info(ref.dtype).itemsize);
  for (size_t i = 0; i < ref.bytes.size(); i += size) {
    if (rng() % 4 == 0 && ref.dtype != DType::kBool) {
      cand.bytes[i] ^= std::byte{1};
    }
  }
  return cand;
}

// Runs each test once per instruction set that this CPU can execute.
class CompareKernel : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(CompareKernel, RunsOnTheTargetUnderTest) {
  EXPECT_EQ(CompareTargetName(), hwy::TargetName(GetParam()));
}

TEST_P(CompareKernel, AgreesWithDefinitionForEveryPairOfDTypesAndTail) {
  std::mt19937 rng(1);
  for (int a = 0; a < kDTypeCount; ++a) {
    for (int b = 0; b < kDTypeCount; ++b) {
      for (size_t count = 0; count <= 67; ++count) {
        const Side ref = RandomSide(static_cast<DType>(a), count, rng);
        const Side cand = a == b && count % 2 == 0
                              ? MostlySame(ref, rng)
                              : RandomSide(static_cast<DType>(b), count, rng);
        ExpectAgree(Compare(ref, cand, count), ByDefinition(ref, cand, count),
                    std::string(Info(ref.dtype).torch_name) + " " +
                        std::string(Info(cand.dtype).torch_name) +
                        " count=" + std::to_string(count));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(CompareKernel, AgreesWithDefinitionOverManyBlocks) {
  std::mt19937 rng(2);
  for (const DType a : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                        DType::kF8E4M3FN, DType::kF8E5M2}) {
    for (const DType b : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                          DType::kF8E4M3FN, DType::kF8E5M2}) {
      for (const uint64_t logical : {0U, 1U, 500U}) {
        const Side ref = RandomSide(a, 5003, rng);
        const Side cand = RandomSide(b, 5003, rng);
        ExpectAgree(Compare(ref, cand, 5003, logical),
                    ByDefinition(ref, cand, 5003, logical),
                    "logical=" + std::to_string(logical));
      }
    }
  }
}

TEST_P(CompareKernel, ScalesAreApplied) {
  std::mt19937 rng(3);
  for (const double scale : {0.5, 8.0, -1.0, 1.0 / 3, 0x1p-40}) {
    Side ref = RandomSide(DType::kF32, 700, rng);
    Side cand = RandomSide(DType::kBF16, 700, rng);
    cand.scale = scale;
    ExpectAgree(Compare(ref, cand, 700), ByDefinition(ref, cand, 700),
                "cand scale " + std::to_string(scale));
    std::swap(ref.scale, cand.scale);
    ExpectAgree(Compare(ref, cand, 700), ByDefinition(ref, cand, 700),
                "ref scale " + std::to_string(scale));
  }
}

TEST_P(CompareKernel, EveryHalfIsRead) {
  Side half;
  half.dtype = DType::kF16;
  std::vector<uint16_t> bits(65536);
  std::vector<float> values(65536);
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<uint16_t>(i);
    values[i] = WidenF16(bits[i]);
  }
  half.bytes = AsBytes(bits);
  const Side floats = {AsBytes(values), DType::kF32, 1};
  const ErrorStats got = Compare(floats, half, bits.size());
  EXPECT_EQ(got.mismatched, 0);
  EXPECT_EQ(got.nonfinite_differ, 0);
  EXPECT_EQ(got.nonfinite_cand, 2048);
  EXPECT_EQ(got.sum_sq_err, 0);
  EXPECT_EQ(got.max_abs_ref, 65504);
  // Both sides by the conversion under test: Inf must stop being a number.
  const ErrorStats self = Compare(half, half, bits.size());
  EXPECT_EQ(self.nonfinite_ref, 2048);
  EXPECT_EQ(self.mismatched, 0);
  EXPECT_EQ(self.max_abs_ref, 65504);
}

// All statistics, bit by bit.
void ExpectSame(const ErrorStats& got, const ErrorStats& want,
                const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_EQ(got.count, want.count);
  EXPECT_EQ(got.mismatched, want.mismatched);
  EXPECT_EQ(got.nonfinite_ref, want.nonfinite_ref);
  EXPECT_EQ(got.nonfinite_cand, want.nonfinite_cand);
  EXPECT_EQ(got.nonfinite_differ, want.nonfinite_differ);
  EXPECT_EQ(got.sum_sq_err, want.sum_sq_err);
  EXPECT_EQ(got.sum_err_ref, want.sum_err_ref);
  EXPECT_EQ(got.sum_sq_ref, want.sum_sq_ref);
  EXPECT_EQ(got.max_abs_err, want.max_abs_err);
  EXPECT_EQ(got.max_abs_ref, want.max_abs_ref);
  EXPECT_EQ(got.max_elem, want.max_elem);
  EXPECT_EQ(got.sum_sq_elem, want.sum_sq_elem);
  EXPECT_EQ(got.max_block_sq_err, want.max_block_sq_err);
}

// A side of the same values in the 16-bit format that holds them.
Side Widened(const Side& side) {
  Side out = {{}, WiderF8(side.dtype), side.scale};
  out.bytes.resize(2 * side.bytes.size());
  for (size_t i = 0; i < side.bytes.size(); ++i) {
    const auto bits = std::to_integer<uint8_t>(side.bytes[i]);
    const uint16_t wide =
        side.dtype == DType::kF8E5M2 ? F8E5M2AsF16(bits) : F8E4M3FNAsBF16(bits);
    std::memcpy(out.bytes.data() + 2 * i, &wide, 2);
  }
  return out;
}

// NaN and infinities among them, and rows that are cut to be widened.
TEST_P(CompareKernel, EightBitFloatsAreComparedLikeTheSameValuesIn16Bits) {
  std::mt19937 rng(9);
  constexpr DType kF8[] = {DType::kF8E4M3FN, DType::kF8E5M2};
  constexpr int64_t kRows = 5;
  for (const DType a : kF8) {
    for (const int64_t cols : {1, 3, 64, 700, 2048, 5003}) {
      const int64_t wide = cols + 37;
      const auto count = static_cast<size_t>(kRows * wide);
      const auto random = [&](DType dtype) {
        Side side = RandomSide(dtype, count, rng);
        // One of a thousand has any bits: NaN, Inf.
        for (std::byte& byte : side.bytes) {
          if (rng() % 1000 == 0) byte = static_cast<std::byte>(rng());
        }
        side.bytes[static_cast<size_t>(cols - 1)] = std::byte{0x7F};
        return side;
      };
      Side ref = random(a);
      const Side floats = RandomSide(DType::kF32, count, rng);
      // Scales, and by what an error is divided where the reference is zero:
      // nothing, much, and what is no fp32 any more as a part of a unit.
      for (const double scale : {0.5, 1.0}) {
        for (const double element_scale : {0.0, kElementScale, 0x1p-122}) {
          const auto compare = [&](const Side& left, const Side& right) {
            ErrorSums sums;
            CompareOperand r = left.Operand();
            CompareOperand c = right.Operand();
            r.row_stride = c.row_stride = wide;
            CompareRows(r, c, {kRows, cols, 300, 4099, element_scale}, &sums);
            return sums.Stats();
          };
          const std::string what = std::string(Info(a).torch_name) +
                                   " cols=" + std::to_string(cols) +
                                   " scale=" + std::to_string(scale);
          ref.scale = scale;
          for (const DType b : kF8) {
            const Side cand = random(b);
            ASSERT_TRUE(HasFastPath(ref.Operand(), cand.Operand()));
            ExpectSame(compare(ref, cand), compare(Widened(ref), Widened(cand)),
                       what);
          }
          ExpectSame(compare(ref, floats), compare(Widened(ref), floats), what);
          ExpectSame(compare(floats, ref), compare(floats, Widened(ref)), what);
        }
      }
    }
  }
}

// Each with each, in blocks of clean values and beside one that is NaN or
// infinite: what bytes say of a block is what its values do.
TEST_P(CompareKernel, EveryPairOfEightBitFloats) {
  for (const DType dtype : {DType::kF8E4M3FN, DType::kF8E5M2}) {
    Side ref = {{}, dtype, 1};
    Side cand = {{}, dtype, 1};
    for (int a = 0; a < 256; ++a) {
      for (int b = 0; b < 256; ++b) {
        ref.bytes.push_back(static_cast<std::byte>(a));
        cand.bytes.push_back(static_cast<std::byte>(b));
      }
    }
    for (size_t from = 0; from < ref.bytes.size(); from += 200) {
      const size_t count = std::min<size_t>(256, ref.bytes.size() - from);
      const auto part = [&](const Side& side) {
        Side out = {{}, dtype, 1};
        out.bytes.assign(
            side.bytes.begin() + static_cast<std::ptrdiff_t>(from),
            side.bytes.begin() + static_cast<std::ptrdiff_t>(from + count));
        return out;
      };
      const Side r = part(ref);
      const Side c = part(cand);
      const ErrorStats got = Compare(r, c, count);
      ExpectSame(got, Compare(Widened(r), Widened(c), count),
                 std::to_string(from));
      ExpectAgree(got, ByDefinition(r, c, count), std::to_string(from));
    }
  }
}

// Lane l of eight adds up elements l, l + 8, ...; every product, sum and
// quotient is rounded by itself.
ErrorStats ByLanesOfDoubles(const Side& ref, const Side& cand, size_t count,
                            double element_scale) {
  ErrorSums sums;
  sums.count = static_cast<int64_t>(count);
  for (size_t begin = 0; begin < count; begin += kCompareBlock) {
    double lanes[4][8] = {};
    const size_t end = std::min<size_t>(count, begin + kCompareBlock);
    for (size_t i = begin; i < end; ++i) {
      const double r = ref.At(i);
      const double c = cand.At(i);
      const double err = c - r;
      const double elem = std::fabs(err) / (std::fabs(r) + element_scale);
      const volatile double products[] = {err * err, err * r, r * r,
                                          elem * elem};
      for (size_t k = 0; k < 4; ++k) lanes[k][i % 8] += products[k];
      sums.mismatched +=
          std::bit_cast<uint64_t>(r) != std::bit_cast<uint64_t>(c) ? 1 : 0;
      sums.max_abs_err = std::max(sums.max_abs_err, std::fabs(err));
      sums.max_abs_ref = std::max(sums.max_abs_ref, std::fabs(r));
      sums.max_elem = std::max(sums.max_elem, elem);
    }
    double total[4] = {};
    for (size_t k = 0; k < 4; ++k) {
      for (const double lane : lanes[k]) total[k] += lane;
    }
    sums.sum_sq_err.Add(total[0]);
    sums.sum_err_ref.Add(total[1]);
    sums.sum_sq_ref.Add(total[2]);
    sums.sum_sq_elem.Add(total[3]);
    sums.max_block_sq_err = std::max(sums.max_block_sq_err, total[0]);
  }
  return sums.Stats();
}

TEST_P(CompareKernel, InDoubleAllBitsAreThoseOfTheDefinition) {
  std::mt19937 rng(10);
  for (int b = 0; b < kDTypeCount; ++b) {
    for (const size_t count : {1U, 7U, 8U, 511U, 5003U}) {
      Side ref = RandomSide(DType::kF64, count, rng);
      const Side cand = RandomSide(static_cast<DType>(b), count, rng);
      const std::string what(Info(cand.dtype).torch_name);
      ExpectSame(Compare(ref, cand, count),
                 ByLanesOfDoubles(ref, cand, count, kElementScale), what);
      ref.scale = 1.0 / 3;
      ExpectSame(Compare(cand, ref, count),
                 ByLanesOfDoubles(cand, ref, count, kElementScale), what);
    }
  }
}

TEST_P(CompareKernel, DoublesAtOddAddresses) {
  std::mt19937 rng(12);
  const Side ref = RandomSide(DType::kF64, 700, rng);
  const Side cand = RandomSide(DType::kF64, 700, rng);
  Bytes shifted(ref.bytes.size() + 1);
  std::copy(ref.bytes.begin(), ref.bytes.end(), shifted.begin() + 1);
  ErrorSums sums;
  CompareRows({shifted.data() + 1, DType::kF64, 0, 1}, cand.Operand(),
              {1, 700, 0, 0, kElementScale}, &sums);
  ExpectSame(sums.Stats(), Compare(ref, cand, 700), "shifted");
}

// Rows apart, that begin and end within blocks: the numbers that earlier
// versions wrote.
TEST_P(CompareKernel, GivesTheNumbersItHasAlwaysGiven) {
  constexpr int64_t kFused = HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON;
  if ((GetParam() & kFused) == 0) GTEST_SKIP() << "rounds products";
  const auto pattern = [](uint32_t from) {
    Bytes bytes(160000);
    for (uint32_t i = 0; i < bytes.size(); ++i) {
      bytes[i] =
          static_cast<std::byte>(((i + from) * 0x9E3779B1U >> 24) & 0xB7);
    }
    return bytes;
  };
  struct Golden {
    DType dtype;
    int64_t mismatched;
    double sum_sq_err, sum_err_ref, sum_sq_ref, max_abs_err, sum_sq_elem,
        max_block_sq_err;
  };
  const Golden all[] = {
      {DType::kF32, 21000, 0x1.40b3507677e3dp-22, -0x1.3e1bd0d8e8a8bp-23,
       0x1.36a16f4391715p-23, 0x1.e38a7p-16, 0x1.40b1ed93796e5p-22,
       0x1.c075b0ap-27},
      {DType::kBF16, 20990, 0x1.36cc566390e61p-22, -0x1.34169023928c8p-23,
       0x1.359dccd07a3p-23, 0x1.e2p-16, 0x1.36cb1137bb989p-22,
       0x1.1d5d843cp-27},
      {DType::kF16, 20990, 0x1.bf4606f0d663cp+9, -0x1.bf09643b2c56fp+8,
       0x1.c7339d02737dap+8, 0x1.d82p-1, 0x1.4582c70f0646cp+9, 0x1.064b1e1p+5},
      {DType::kF8E4M3FN, 20744, 0x1.6cbacb34p+12, -0x1.6cce7758p+11,
       0x1.7800b0e8p+11, 0x1.ep+0, 0x1.9411d6396a9cp+11, 0x1.f0cbef8p+7},
      {DType::kF8E5M2, 20744, 0x1.89b3b887438p+9, -0x1.89d96f7c26p+8,
       0x1.957856b5cfp+8, 0x1.cp-1, 0x1.248402837faep+9, 0x1.ea2de15p+4}};
  const Bytes ref = pattern(0);
  const Bytes cand = pattern(13);
  for (const Golden& golden : all) {
    ErrorSums sums;
    CompareRows({ref.data(), golden.dtype, 1000, 1},
                {cand.data(), golden.dtype, 700, 1}, {30, 700, 130, 1000, 1},
                &sums);
    const ErrorStats got = sums.Stats();
    SCOPED_TRACE(Info(golden.dtype).torch_name);
    EXPECT_EQ(got.mismatched, golden.mismatched);
    EXPECT_EQ(got.sum_sq_err, golden.sum_sq_err);
    EXPECT_EQ(got.sum_err_ref, golden.sum_err_ref);
    EXPECT_EQ(got.sum_sq_ref, golden.sum_sq_ref);
    EXPECT_EQ(got.max_abs_err, golden.max_abs_err);
    EXPECT_EQ(got.sum_sq_elem, golden.sum_sq_elem);
    EXPECT_EQ(got.max_block_sq_err, golden.max_block_sq_err);
  }
}

TEST_P(CompareKernel, TargetsWithFusedMultiplyAddGiveTheSameBits) {
  constexpr int64_t kFused = HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON;
  if ((GetParam() & kFused) == 0) GTEST_SKIP() << "has none";
  std::mt19937 rng(13);
  constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16,
                               DType::kF8E4M3FN, DType::kF8E5M2};
  for (const DType a : kDTypes) {
    for (const DType b : kDTypes) {
      const Side ref = RandomSide(a, 5003, rng);
      const Side cand = RandomSide(b, 5003, rng);
      hwy::SetSupportedTargetsForTest(GetParam());
      const ErrorStats got = Compare(ref, cand, 5003, 77);
      hwy::SetSupportedTargetsForTest(0);  // the best of the machine
      ExpectSame(got, Compare(ref, cand, 5003, 77),
                 std::string(Info(a).torch_name) + " " +
                     std::string(Info(b).torch_name));
    }
  }
}

TEST_P(CompareKernel, NonFiniteElementsAreMatchedByPositionAndKind) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const auto odd_nan = std::bit_cast<float>(0xFFC12345U);
  for (const size_t at : {0U, 15U, 16U, 500U, 1000U}) {
    std::vector<float> r(1024, 1), c(1024, 1);
    const float ref[] = {1, kNaN, 3, kInf, -kInf, kNaN};
    const float cand[] = {1, 2, kNaN, kInf, kInf, odd_nan};
    std::copy(ref, ref + 6, r.begin() + std::ptrdiff_t(at));
    std::copy(cand, cand + 6, c.begin() + std::ptrdiff_t(at));
    const ErrorStats got = Compare({AsBytes(r), DType::kF32, 1},
                                   {AsBytes(c), DType::kF32, 1}, 1024);
    EXPECT_EQ(got.nonfinite_ref, 4);
    EXPECT_EQ(got.nonfinite_cand, 4);
    EXPECT_EQ(got.nonfinite_differ, 3);
    EXPECT_EQ(got.mismatched, 3);
    EXPECT_EQ(got.rel_err(), 0);  // all finite pairs agree
    EXPECT_EQ(got.sum_sq_ref, 1024 - 5);
    EXPECT_EQ(got.max_abs_ref, 1);
  }
}

TEST_P(CompareKernel, TinyAndHugeValuesLeaveTheRangeOfFloatSquares) {
  // 1e-45 is a denormal of float, and of bfloat16's range too.
  for (const float x : {1e-45F, 1e-40F, 1e-30F, 1e-22F, 1e19F, 3e38F}) {
    for (const size_t count : {3U, 100U, 5000U}) {
      const Side ref = {AsBytes(std::vector<float>(count, x)), DType::kF32, 1};
      std::vector<float> values(count, x);
      values[count / 2] = 0;
      const Side cand = {AsBytes(values), DType::kF32, 1};
      ExpectAgree(Compare(ref, cand, count), ByDefinition(ref, cand, count),
                  "x=" + std::to_string(x));
      EXPECT_NEAR(Compare(ref, cand, count).rel_err(),
                  std::sqrt(1.0 / static_cast<double>(count)), 1e-6);
    }
  }
}

TEST_P(CompareKernel, ASmallErrorBesideLargeValuesIsNotLost) {
  std::vector<float> r(512, 0), c(512, 0);
  r[0] = c[0] = 1e10F;
  r[7] = 1e-30F;  // its square vanishes in float, and is the whole error
  const ErrorStats got =
      Compare({AsBytes(r), DType::kF32, 1}, {AsBytes(c), DType::kF32, 1}, 512);
  EXPECT_NEAR(got.sum_sq_err, 1e-60, 1e-66);
  EXPECT_EQ(got.mismatched, 1);
}

TEST_P(CompareKernel, OneUnitInTheLastPlaceIsSeenExactly) {
  const Side one = {AsBytes(std::vector<uint16_t>{0x3F80}), DType::kBF16, 1};
  const Side next = {AsBytes(std::vector<uint16_t>{0x3F81}), DType::kBF16, 1};
  EXPECT_EQ(Compare(one, next, 1).max_abs_err, 0x1p-7);
  EXPECT_EQ(Compare(one, next, 1).mismatched, 1);
  for (size_t at = 0; at < 600; at += 13) {
    std::vector<float> r(600, 1.5F);
    const Side ref = {AsBytes(r), DType::kF32, 1};
    r[at] = std::nextafter(1.5F, 2.0F);
    const ErrorStats got = Compare(ref, {AsBytes(r), DType::kF32, 1}, 600);
    EXPECT_EQ(got.mismatched, 1);
    EXPECT_EQ(got.max_abs_err, 0x1p-23);
    EXPECT_EQ(got.sum_sq_err, 0x1p-46);
    EXPECT_EQ(got.sum_err_ref, 1.5 * 0x1p-23);
  }
}

TEST_P(CompareKernel, NegativeZeroDiffersInABitButNotInValue) {
  std::vector<float> zeros(1000, 0.0F);
  const Side ref = {AsBytes(zeros), DType::kF32, 1};
  zeros[999] = -0.0F;
  const ErrorStats got = Compare(ref, {AsBytes(zeros), DType::kF32, 1}, 1000);
  EXPECT_EQ(got.mismatched, 1);
  EXPECT_EQ(got.rel_err(), 0);
}

TEST_P(CompareKernel, Int64BeyondDoublePrecisionIsToldApart) {
  const int64_t big = (int64_t{1} << 62) + 1;
  const Side ref = {AsBytes(std::vector<int64_t>{big, INT64_MIN}), DType::kI64,
                    1};
  const Side cand = {AsBytes(std::vector<int64_t>{big + 1, INT64_MAX}),
                     DType::kI64, 1};
  const ErrorStats got = Compare(ref, cand, 2);
  EXPECT_EQ(got.mismatched, 2);
  EXPECT_EQ(got.max_abs_err, 0x1p64);
  EXPECT_EQ(Compare(ref, cand, 1).sum_sq_err, 1);
}

// Rows of a column shard against the whole, at odd addresses and strides.
TEST_P(CompareKernel, StridedRowsAgreeWithDefinition) {
  std::mt19937 rng(4);
  constexpr int64_t kRows = 7, kWide = 900, kBegin = 100;
  for (const DType a : {DType::kF32, DType::kBF16, DType::kF64,
                        DType::kF8E4M3FN, DType::kF8E5M2}) {
    for (const int64_t cols : {1, 15, 64, 513, 700}) {
      const Side ref = RandomSide(a, kRows * kWide, rng);
      const Side cand =
          RandomSide(DType::kBF16, static_cast<size_t>(kRows * cols), rng);
      CompareOperand r = ref.Operand();
      r.data += kBegin * Info(a).itemsize;
      r.row_stride = kWide;
      CompareOperand c = cand.Operand();
      c.row_stride = cols;
      ErrorSums sums;
      CompareRows(r, c, {kRows, cols, kBegin, kWide, kElementScale}, &sums);
      Side picked = ref;
      picked.bytes.clear();
      for (int64_t row = 0; row < kRows; ++row) {
        const auto from =
            ref.bytes.begin() + (row * kWide + kBegin) * Info(a).itemsize;
        picked.bytes.insert(picked.bytes.end(), from,
                            from + cols * Info(a).itemsize);
      }
      ErrorStats want =
          ByDefinition(picked, cand, static_cast<size_t>(kRows * cols));
      // No row goes through a whole block but by itself.
      want.max_block_sq_err = sums.Stats().max_block_sq_err;
      ExpectAgree(sums.Stats(), want, "cols=" + std::to_string(cols));
      for (int64_t row = 0; row < kRows; ++row) {
        ErrorSums one;
        CompareOperand r1 = r;
        CompareOperand c1 = c;
        r1.data += row * kWide * Info(a).itemsize;
        c1.data += row * cols * 2;
        const auto begin = static_cast<uint64_t>(row * kWide + kBegin);
        CompareRows(r1, c1, {1, cols, begin, 0, kElementScale}, &one);
        want.max_block_sq_err = row == 0 ? 0 : want.max_block_sq_err;
        want.max_block_sq_err =
            std::max(want.max_block_sq_err, one.Stats().max_block_sq_err);
      }
      EXPECT_EQ(sums.Stats().max_block_sq_err, want.max_block_sq_err);
    }
  }
}

TEST_P(CompareKernel, CutsAtBlockMultiplesChangeNothing) {
  std::mt19937 rng(5);
  constexpr size_t kCount = 16 * kCompareBlock;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF8E4M3FN}) {
    const Side ref = RandomSide(dtype, kCount, rng);
    const Side cand = RandomSide(dtype, kCount, rng);
    const int64_t size = Info(dtype).itemsize;
    const ErrorStats want = Compare(ref, cand, kCount);
    std::vector<int64_t> blocks(16);
    for (int64_t i = 0; i < 16; ++i) blocks[static_cast<size_t>(i)] = i;
    std::shuffle(blocks.begin(), blocks.end(), rng);
    ErrorSums parts[2];
    for (const int64_t block : blocks) {
      const int64_t begin = block * kCompareBlock;
      CompareOperand r = ref.Operand();
      CompareOperand c = cand.Operand();
      r.data += begin * size;
      c.data += begin * size;
      CompareRows(
          r, c,
          {1, kCompareBlock, static_cast<uint64_t>(begin), 0, kElementScale},
          &parts[block % 2]);
    }
    parts[1].Merge(parts[0]);
    ExpectSame(parts[1].Stats(), want, "in parts");
  }
}

TEST_P(CompareKernel, ElementErrorsAreTheSameBitsEverywhere) {
  std::mt19937 rng(6);
  const Side ref = RandomSide(DType::kF32, 3000, rng);
  const Side cand = MostlySame(ref, rng);
  float want = 0;
  for (size_t i = 0; i < 3000; ++i) {
    const auto r = static_cast<float>(ref.At(i));
    const auto c = static_cast<float>(cand.At(i));
    want = std::max(want, std::fabs(c - r) / (std::fabs(r) + 0.3F));
  }
  EXPECT_GT(want, 0);
  EXPECT_EQ(Compare(ref, cand, 3000, 0, 0.3F).max_elem,
            static_cast<double>(want));
}

TEST_P(CompareKernel, WithoutAnElementScaleAllElseIsTheSame) {
  std::mt19937 rng(7);
  const Side ref = RandomSide(DType::kBF16, 3000, rng);
  const Side cand = RandomSide(DType::kBF16, 3000, rng);
  ErrorStats with = Compare(ref, cand, 3000);
  const ErrorStats without = Compare(ref, cand, 3000, 0, 0);
  EXPECT_EQ(without.max_elem, 0);
  EXPECT_EQ(without.sum_sq_elem, 0);
  EXPECT_GT(with.max_elem, 0);
  EXPECT_EQ(with.sum_sq_err, without.sum_sq_err);
  EXPECT_EQ(with.max_block_sq_err, without.max_block_sq_err);
  EXPECT_EQ(with.max_abs_err, without.max_abs_err);
  EXPECT_EQ(with.mismatched, without.mismatched);
}

// Scales beyond fp32, and quotients and their squares that are.
TEST_P(CompareKernel, ElementErrorsBeyondTheRangeOfFloat) {
  for (const float x : {1e-40F, 1e-20F, 1.0F, 1e15F}) {
    for (const double scale : {1e-290, 1e-44, 1e-38, 1e-30, 1e20, 1e300}) {
      std::vector<float> r(700, 0.0F);
      std::vector<float> c(700, x);
      r[3] = x;
      const Side ref = {AsBytes(r), DType::kF32, 1};
      const Side cand = {AsBytes(c), DType::kF32, 1};
      const double want = static_cast<double>(x) / scale;
      const ErrorStats got = Compare(ref, cand, 700, 0, scale);
      EXPECT_NEAR(got.max_elem, want, 1e-6 * want + 1e-44) << x << " " << scale;
    }
  }
}

TEST(CompareTarget, IsWhatTheInstructionSetIsLimitedTo) {
  for (const std::string& name : InstructionSets()) {
    ASSERT_TRUE(LimitInstructionSet(name).ok());
    EXPECT_EQ(CompareTargetName(), name);
  }
  ASSERT_TRUE(LimitInstructionSet("").ok());
  EXPECT_EQ(CompareTargetName(), InstructionSet());
}

INSTANTIATE_TEST_SUITE_P(AllTargets, CompareKernel,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) {
                           return hwy::TargetName(target.param);
                         });

}  // namespace
}  // namespace ttrace::compare_kernel_test
