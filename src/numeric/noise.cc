#include "src/numeric/noise.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "src/numeric/philox.h"
#include "src/numeric/round_to.h"
#include "src/numeric/widen.h"

// Built with -ffp-contract=off: contracting x * (1 + u * noise) would round
// differently on machines with and without FMA.

namespace ttrace {
namespace {

constexpr uint64_t kTileElements = 64;
constexpr uint64_t kTileCounters = 16;

// 24 bits and a half: exact in float, symmetric, and never 0 or +-1.
float ToUniform(uint32_t word) {
  return (static_cast<float>(static_cast<int32_t>(word) >> 8) + 0.5F) *
         0x1p-23F;
}

// Elements of one key in any order, cheapest in rising order.
class UniformStream {
 public:
  explicit UniformStream(const NoiseKey& key) : key_(key) { Fill(0); }

  double At(uint64_t index) {
    const uint64_t tile = index / kTileElements;
    if (tile != tile_) Fill(tile);
    return static_cast<double>(values_[index % kTileElements]);
  }

 private:
  // Sixteen counters side by side in arrays, which compilers vectorise.
  void Fill(uint64_t tile) {
    tile_ = tile;
    uint32_t x[4][kTileCounters];
    for (uint64_t l = 0; l < kTileCounters; ++l) {
      const uint64_t counter = kTileCounters * tile + l;
      x[0][l] = static_cast<uint32_t>(counter);
      x[1][l] = static_cast<uint32_t>(counter >> 32);
      x[2][l] = static_cast<uint32_t>(key_.name);
      x[3][l] = static_cast<uint32_t>(key_.name >> 32);
    }
    auto key0 = static_cast<uint32_t>(key_.seed);
    auto key1 = static_cast<uint32_t>(key_.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      for (uint64_t l = 0; l < kTileCounters; ++l) {
        PhiloxRound(x[0][l], x[1][l], x[2][l], x[3][l], key0, key1);
      }
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    for (uint64_t w = 0; w < 4; ++w) {
      for (uint64_t l = 0; l < kTileCounters; ++l) {
        values_[w * kTileCounters + l] = ToUniform(x[w][l]);
      }
    }
  }

  NoiseKey key_;
  uint64_t tile_ = 0;
  std::array<float, kTileElements> values_ = {};
};

// x to nearest even among the numbers with `precision` significand bits and
// exponents from `min_exponent`. Adding and subtracting 1.5 * 2^52 units of the
// last place does it in one rounding; by way of float it would be two.
double RoundTo(double x, int precision, int min_exponent) {
  const auto biased =
      static_cast<int>((std::bit_cast<uint64_t>(x) >> 52) & 0x7FF);
  const int exponent = biased - 1023;
  const int ulp =
      (exponent > min_exponent ? exponent : min_exponent) - (precision - 1);
  const auto magic_bits =
      (static_cast<uint64_t>(ulp + 52 + 1023) << 52) | (uint64_t{1} << 51);
  const auto magic = std::bit_cast<double>(magic_bits);
  return (x + magic) - magic;
}

struct BF16Codec {
  using Bits = uint16_t;
  static double Decode(Bits b) { return static_cast<double>(WidenBF16(b)); }
  static Bits Encode(double x, Bits unchanged) {
    const auto f = static_cast<float>(RoundTo(x, 8, -126));
    if (!std::isfinite(f)) return unchanged;
    return static_cast<Bits>(std::bit_cast<uint32_t>(f) >> 16);
  }
};

struct F16Codec {
  using Bits = uint16_t;
  static double Decode(Bits b) { return static_cast<double>(WidenF16(b)); }
  static Bits Encode(double x, Bits unchanged) {
    const double rounded = std::fabs(RoundTo(x, 11, -14));
    if (rounded > 65504) return unchanged;
    const auto sign = static_cast<uint32_t>(std::signbit(x) ? 0x8000 : 0);
    if (rounded < 0x1p-14) {  // denormal: a multiple of 2^-24
      return static_cast<Bits>(sign | static_cast<uint32_t>(rounded * 0x1p24));
    }
    const auto bits = std::bit_cast<uint64_t>(rounded);
    const auto exponent = static_cast<uint32_t>(bits >> 52) - 1023 + 15;
    const auto fraction = static_cast<uint32_t>(bits >> 42) & 0x3FFU;
    return static_cast<Bits>(sign | (exponent << 10) | fraction);
  }
};

struct F32Codec {
  using Bits = uint32_t;
  static double Decode(Bits b) {
    return static_cast<double>(std::bit_cast<float>(b));
  }
  static Bits Encode(double x, Bits unchanged) {
    const auto f = static_cast<float>(x);
    return std::isfinite(f) ? std::bit_cast<Bits>(f) : unchanged;
  }
};

// `lowest`: the middle of the lowest binade, whose spacing all numbers below it
// have.
template <class Codec>
typename Codec::Bits PerturbElement(typename Codec::Bits bits, double u_noise,
                                    double lowest) {
  const double x = Codec::Decode(bits);
  if (!std::isfinite(x) || x == 0) return bits;
  if (std::fabs(x) < lowest) {
    return Codec::Encode(x + std::copysign(lowest, x) * u_noise, bits);
  }
  // At most 24 + 49 significant bits: the product is exact for 16-bit floats
  // and rounds far below the last place for float.
  return Codec::Encode(x * (1.0 + u_noise), bits);
}

struct F64Codec {
  using Bits = uint64_t;
};
template <>
uint64_t PerturbElement<F64Codec>(uint64_t bits, double u_noise,
                                  double /*lowest*/) {
  const auto x = std::bit_cast<double>(bits);
  if (!std::isfinite(x) || x == 0) return bits;
  // 1 + u * noise does not fit a double: its parts are multiplied apart.
  const double y = x + x * u_noise;
  return std::isfinite(y) ? std::bit_cast<uint64_t>(y) : bits;
}

template <class Codec>
void PerturbRun(UniformStream& noise, double u, double lowest, uint64_t logical,
                int64_t count, std::byte* p, std::ptrdiff_t step) {
  for (int64_t i = 0; i < count; ++i, p += step, ++logical) {
    typename Codec::Bits bits;
    std::memcpy(&bits, p, sizeof(bits));
    bits = PerturbElement<Codec>(bits, u * noise.At(logical), lowest);
    std::memcpy(p, &bits, sizeof(bits));
  }
}

// Walks the cross product of the dimensions' segments in local order.
template <class Codec>
class Walk {
 public:
  Walk(const NoiseKey& key, const Layout& layout, DType dtype,
       std::span<const int64_t> strides)
      : noise_(key),
        layout_(layout),
        u_(UnitRoundoff(dtype)),
        lowest_(1.5 * RangeOf(dtype).tiny) {
    const size_t rank = layout.dims.size();
    logical_strides_.assign(rank, 1);
    for (size_t d = rank; d-- > 1;) {
      logical_strides_[d - 1] =
          logical_strides_[d] *
          static_cast<uint64_t>(layout.dims[d].global_size);
    }
    for (const int64_t stride : strides) {
      steps_.push_back(stride *
                       static_cast<int64_t>(sizeof(typename Codec::Bits)));
    }
  }

  void Dimension(size_t d, uint64_t logical, std::byte* p) {
    if (layout_.dims.empty()) {
      PerturbRun<Codec>(noise_, u_, lowest_, 0, 1, p, 0);
      return;
    }
    for (const Segment& segment : layout_.dims[d].segments) {
      uint64_t at =
          logical + static_cast<uint64_t>(segment.begin) * logical_strides_[d];
      if (d + 1 == layout_.dims.size()) {
        PerturbRun<Codec>(noise_, u_, lowest_, at, segment.size, p, steps_[d]);
        p += segment.size * steps_[d];
        continue;
      }
      for (int64_t i = 0; i < segment.size; ++i) {
        Dimension(d + 1, at, p);
        p += steps_[d];
        at += logical_strides_[d];
      }
    }
  }

 private:
  UniformStream noise_;
  const Layout& layout_;
  double u_;
  double lowest_;
  std::vector<uint64_t> logical_strides_;
  std::vector<std::ptrdiff_t> steps_;  // in bytes
};

}  // namespace

NoiseKey MakeNoiseKey(uint64_t seed, std::string_view name) {
  return {seed, XXH3_64bits(name.data(), name.size())};
}

float UniformAt(const NoiseKey& key, uint64_t logical_index) {
  const uint64_t counter = kTileCounters * (logical_index / kTileElements) +
                           logical_index % kTileCounters;
  const PhiloxCounter words = Philox4x32(
      {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
       static_cast<uint32_t>(key.name), static_cast<uint32_t>(key.name >> 32)},
      {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  return ToUniform(words[(logical_index % kTileElements) / kTileCounters]);
}

Status Perturb(const NoiseKey& key, const Layout& layout, DType dtype,
               std::byte* data, std::span<const int64_t> strides) {
  if (!Info(dtype).floating) {
    return Error(ErrorCode::kUnsupported,
                 "noise is only defined for floating dtypes, not " +
                     std::string(Info(dtype).torch_name));
  }
  if (strides.size() != layout.dims.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 "noise: the tensor has " + std::to_string(strides.size()) +
                     " dimensions and its layout " +
                     std::to_string(layout.dims.size()));
  }
  if (layout.local_count() == 0) return Done{};
  for (size_t d = 0; d < strides.size(); ++d) {
    if (strides[d] == 0 && layout.dims[d].local_size() > 1) {
      return Error(ErrorCode::kInvalidArgument,
                   "noise: dimension " + std::to_string(d) +
                       " is expanded, its elements share memory");
    }
  }
  switch (dtype) {
    case DType::kF16:
      Walk<F16Codec>(key, layout, dtype, strides).Dimension(0, 0, data);
      break;
    case DType::kBF16:
      Walk<BF16Codec>(key, layout, dtype, strides).Dimension(0, 0, data);
      break;
    case DType::kF32:
      Walk<F32Codec>(key, layout, dtype, strides).Dimension(0, 0, data);
      break;
    default:
      Walk<F64Codec>(key, layout, dtype, strides).Dimension(0, 0, data);
      break;
  }
  return Done{};
}

}  // namespace ttrace
