#include "src/numeric/random_tensor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "src/numeric/layout_runs.h"
#include "src/numeric/narrow.h"
#include "src/numeric/noise_kernel.h"
#include "src/numeric/random_kernel.h"

namespace ttrace {
namespace {

// Values that are made at once: 4 KiB, in the first level of cache.
constexpr uint64_t kTilesAtOnce = 16;
constexpr uint64_t kValuesAtOnce = kTilesAtOnce * kNoiseTile;

// Values in any order, cheapest in rising order.
class ValueStream {
 public:
  ValueStream(const NoiseKey& key, Distribution distribution, float scale)
      : key_(key), distribution_(distribution), scale_(scale) {}

  // Those from `index` on, at least one and at most `count`; says how many.
  const float* At(uint64_t index, uint64_t* count) {
    const uint64_t group = index / kValuesAtOnce * kValuesAtOnce;
    *count = std::min(*count, group + kValuesAtOnce - index);
    const uint64_t first = index / kNoiseTile;
    const uint64_t end = (index + *count - 1) / kNoiseTile + 1;
    if (first < first_ || end > end_) {
      Make(first, end - first);
      first_ = first;
      end_ = end;
    }
    return values_ + (index - first_ * kNoiseTile);
  }

 private:
  void Make(uint64_t first, uint64_t tiles) {
    NoiseWords(key_, first, tiles, words_);
    if (distribution_ == Distribution::kNormal) {
      NormalOfWords(words_, tiles, scale_, values_);
    } else {
      UniformOfWords(words_, tiles, scale_, values_);
    }
  }

  NoiseKey key_;
  Distribution distribution_;
  float scale_;
  uint64_t first_ = 1;  // none
  uint64_t end_ = 0;
  alignas(64) uint32_t words_[kValuesAtOnce];
  alignas(64) float values_[kValuesAtOnce];
};

// Ties to even. REQUIRES: no NaN; no scale makes one.
uint16_t RoundToBF16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

void Store(DType dtype, const float* values, uint64_t count, std::byte* to,
           std::ptrdiff_t stride) {
  if (dtype == DType::kF32 && stride == 1) {
    std::memcpy(to, values, count * sizeof(float));
    return;
  }
  if (dtype == DType::kBF16 && stride == 1) {
    uint16_t rounded[kValuesAtOnce];
    for (uint64_t i = 0; i < count; ++i) rounded[i] = RoundToBF16(values[i]);
    std::memcpy(to, rounded, count * sizeof(uint16_t));
    return;
  }
  stride *= Info(dtype).itemsize;
  for (uint64_t i = 0; i < count; ++i) {
    Narrow(dtype, static_cast<double>(values[i]), to);
    to += stride;
  }
}

}  // namespace

Status FillRandom(const NoiseKey& key, Distribution distribution, float scale,
                  const Layout& layout, DType dtype, std::byte* to,
                  std::span<const int64_t> strides) {
  if (!Info(dtype).floating) {
    return Error(ErrorCode::kUnsupported,
                 "random tensors are only made of floating dtypes, not " +
                     std::string(Info(dtype).torch_name));
  }
  if (strides.size() != layout.dims.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 "a random tensor has " + std::to_string(strides.size()) +
                     " dimensions and its layout " +
                     std::to_string(layout.dims.size()));
  }
  ValueStream stream(key, distribution, scale);
  const int64_t itemsize = Info(dtype).itemsize;
  ForEachRun(layout, strides, [&](const LocalRun& run) {
    for (int64_t i = 0; i < run.count;) {
      auto count = static_cast<uint64_t>(run.count - i);
      std::byte* at = to + (run.at + i * run.stride) * itemsize;
      // Memory comes while the values are made.
      if (run.stride == 1) {
        const uint64_t bytes =
            std::min(count, kValuesAtOnce) * static_cast<uint64_t>(itemsize);
        for (uint64_t b = 0; b < bytes; b += 64) __builtin_prefetch(at + b, 1);
      }
      const float* values =
          stream.At(run.logical + static_cast<uint64_t>(i), &count);
      Store(dtype, values, count, at, run.stride);
      i += static_cast<int64_t>(count);
    }
  });
  return Done{};
}

}  // namespace ttrace
