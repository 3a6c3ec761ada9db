#include "src/numeric/noise.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "src/numeric/noise_kernel.h"

// Built with -ffp-contract=off: contracting x + x * (u * noise) would round
// doubles differently on machines with and without FMA.

namespace ttrace {
namespace {

// Of a part that another thread may do: some ten times what it takes to wake
// one.
constexpr size_t kTilesOfAPart = 4096;

// 24 bits and a half: exact in float, symmetric, and never 0 or +-1.
float ToUniform(uint32_t word) {
  return (static_cast<float>(static_cast<int32_t>(word) >> 8) + 0.5F) *
         0x1p-23F;
}

// Random words of one key in any order, cheapest in rising order.
class WordStream {
 public:
  explicit WordStream(const NoiseKey& key) : key_(key) {}

  uint32_t At(uint64_t index) {
    const uint64_t tile = index / kNoiseTile;
    if (tile != tile_) NoiseWords(key_, tile, 1, words_.data());
    tile_ = tile;
    return words_[index % kNoiseTile];
  }

 private:
  NoiseKey key_;
  uint64_t tile_ = ~uint64_t{0};  // of no index
  std::array<uint32_t, kNoiseTile> words_ = {};
};

uint64_t PerturbDouble(uint64_t bits, uint32_t word) {
  const auto x = std::bit_cast<double>(bits);
  if (!std::isfinite(x) || x == 0) return bits;
  // 1 + u * noise does not fit a double: its parts are multiplied apart.
  const double y = x + x * (0x1p-53 * static_cast<double>(ToUniform(word)));
  return std::isfinite(y) ? std::bit_cast<uint64_t>(y) : bits;
}

template <class Bits>
Bits PerturbElement(Bits bits, uint32_t word, int p) {
  if constexpr (sizeof(Bits) == sizeof(uint64_t)) {
    return PerturbDouble(bits, word);
  } else {
    return static_cast<Bits>(PerturbBits(bits, word, p));
  }
}

// A dimension of the tensor, and of both places in bytes.
struct Axis {
  std::vector<Segment> segments;
  int64_t global = 1;
  std::ptrdiff_t from = 0;
  std::ptrdiff_t to = 0;
};

// Walks the cross product of the dimensions' segments in local order.
template <class Bits>
class Walk {
 public:
  Walk(const NoiseKey& key, const Layout& layout, int p,
       std::span<const int64_t> from, std::span<const int64_t> to,
       const DoParts& parts)
      : key_(key), words_(key), p_(p), parts_(parts) {
    constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(Bits));
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      axes_.push_back({layout.dims[d].segments, layout.dims[d].global_size,
                       from[d] * kSize, to[d] * kSize});
    }
    if (axes_.empty()) axes_.push_back({{{0, 1}}, 1, kSize, kSize});
    while (axes_.size() > 1 && Merge()) {
    }
    logical_strides_.assign(axes_.size(), 1);
    for (size_t d = axes_.size(); d-- > 1;) {
      logical_strides_[d - 1] =
          logical_strides_[d] * static_cast<uint64_t>(axes_[d].global);
    }
  }

  void Dimension(size_t d, uint64_t logical, const std::byte* from,
                 std::byte* to) {
    const Axis& axis = axes_[d];
    for (const Segment& segment : axis.segments) {
      uint64_t at =
          logical + static_cast<uint64_t>(segment.begin) * logical_strides_[d];
      if (d + 1 == axes_.size()) {
        Run(at, segment.size, from, to);
        from += segment.size * axis.from;
        to += segment.size * axis.to;
        continue;
      }
      for (int64_t i = 0; i < segment.size; ++i) {
        Dimension(d + 1, at, from, to);
        from += axis.from;
        to += axis.to;
        at += logical_strides_[d];
      }
    }
  }

 private:
  // The last two dimensions as one, if the last is whole and they lie one
  // behind the other in both places.
  bool Merge() {
    const Axis& last = axes_.back();
    Axis& before = axes_[axes_.size() - 2];
    if (last.segments.size() != 1 || last.segments.front().begin != 0 ||
        last.segments.front().size != last.global ||
        before.from != last.from * last.global ||
        before.to != last.to * last.global) {
      return false;
    }
    for (Segment& segment : before.segments) {
      segment.begin *= last.global;
      segment.size *= last.global;
    }
    before.global *= last.global;
    before.from = last.from;
    before.to = last.to;
    axes_.pop_back();
    return true;
  }

  void Run(uint64_t logical, int64_t count, const std::byte* from,
           std::byte* to) {
    constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(Bits));
    const Axis& axis = axes_.back();
    int64_t left = count;
    while (left > 0) {
      const uint64_t tiles = static_cast<uint64_t>(left) / kNoiseTile;
      int64_t done = 0;
      if (sizeof(Bits) < sizeof(uint64_t) && axis.from == kSize &&
          axis.to == kSize && logical % kNoiseTile == 0 && tiles > 0) {
        Tiles(logical / kNoiseTile, tiles, from, to);
        done = static_cast<int64_t>(tiles * kNoiseTile);
      } else {
        done = std::min(
            left, static_cast<int64_t>(kNoiseTile - logical % kNoiseTile));
        Elements(logical, done, from, to);
      }
      left -= done;
      logical += static_cast<uint64_t>(done);
      from += done * axis.from;
      to += done * axis.to;
    }
  }

  void Tiles(uint64_t first, size_t tiles, const std::byte* from,
             std::byte* to) {
    if (tiles < 2 * kTilesOfAPart) {
      PerturbTiles(key_, first, tiles, p_, from, to);
      return;
    }
    parts_((tiles + kTilesOfAPart - 1) / kTilesOfAPart, [&](size_t i) {
      const size_t begin = i * kTilesOfAPart;
      const size_t at = begin * kNoiseTile * sizeof(Bits);
      PerturbTiles(key_, first + begin, std::min(kTilesOfAPart, tiles - begin),
                   p_, from + at, to + at);
    });
  }

  void Elements(uint64_t logical, int64_t count, const std::byte* from,
                std::byte* to) {
    const Axis& axis = axes_.back();
    for (int64_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, from, sizeof(bits));
      bits = PerturbElement(bits, words_.At(logical), p_);
      std::memcpy(to, &bits, sizeof(bits));
      from += axis.from;
      to += axis.to;
      ++logical;
    }
  }

  NoiseKey key_;
  WordStream words_;
  int p_;
  const DoParts& parts_;
  std::vector<Axis> axes_;
  std::vector<uint64_t> logical_strides_;
};

template <class Bits>
void PerturbAs(const NoiseKey& key, const Layout& layout, int p,
               const std::byte* from, std::span<const int64_t> from_strides,
               std::byte* to, std::span<const int64_t> to_strides,
               const DoParts& parts) {
  Walk<Bits>(key, layout, p, from_strides, to_strides, parts)
      .Dimension(0, 0, from, to);
}

}  // namespace

NoiseKey MakeNoiseKey(uint64_t seed, std::string_view name) {
  return {seed, XXH3_64bits(name.data(), name.size())};
}

float UniformAt(const NoiseKey& key, uint64_t logical_index) {
  const uint64_t counter = kNoiseCounters * (logical_index / kNoiseTile) +
                           logical_index % kNoiseCounters;
  const PhiloxCounter words = NoiseWordsOf(key, counter);
  return ToUniform(words[(logical_index % kNoiseTile) / kNoiseCounters]);
}

Status Perturb(const NoiseKey& key, const Layout& layout, DType dtype,
               const std::byte* from, std::span<const int64_t> from_strides,
               std::byte* to, std::span<const int64_t> to_strides,
               const DoParts& parts) {
  if (!Info(dtype).floating || Info(dtype).itemsize == 1) {
    return Error(ErrorCode::kUnsupported,
                 "noise is only defined for floats of 16 bits and more, not " +
                     std::string(Info(dtype).torch_name));
  }
  for (const auto strides : {from_strides, to_strides}) {
    if (strides.size() == layout.dims.size()) continue;
    return Error(ErrorCode::kInvalidArgument,
                 "noise: the tensor has " + std::to_string(strides.size()) +
                     " dimensions and its layout " +
                     std::to_string(layout.dims.size()));
  }
  if (layout.local_count() == 0) return Done{};
  for (size_t d = 0; d < to_strides.size(); ++d) {
    if (to_strides[d] == 0 && layout.dims[d].local_size() > 1) {
      return Error(ErrorCode::kInvalidArgument,
                   "noise: dimension " + std::to_string(d) +
                       " is expanded, its elements share memory");
    }
  }
  switch (dtype) {
    case DType::kF16:
      PerturbAs<uint16_t>(key, layout, 10, from, from_strides, to, to_strides,
                          parts);
      break;
    case DType::kBF16:
      PerturbAs<uint16_t>(key, layout, 7, from, from_strides, to, to_strides,
                          parts);
      break;
    case DType::kF32:
      PerturbAs<uint32_t>(key, layout, 23, from, from_strides, to, to_strides,
                          parts);
      break;
    default:
      PerturbAs<uint64_t>(key, layout, 52, from, from_strides, to, to_strides,
                          parts);
      break;
  }
  return Done{};
}

}  // namespace ttrace
