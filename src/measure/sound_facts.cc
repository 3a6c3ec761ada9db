#include "src/measure/sound_facts.h"

#include <cstdint>

namespace ttrace {

bool IsSound(const Layout& layout) {
  int64_t count = 1;
  for (const DimLayout& dim : layout.dims) {
    if (dim.global_size < 0 ||
        __builtin_mul_overflow(count, dim.global_size, &count)) {
      return false;
    }
    int64_t end = 0;
    for (const Segment& s : dim.segments) {
      if (s.begin < 0 || s.size < 0 || s.begin > dim.global_size - s.size ||
          __builtin_add_overflow(end, s.size, &end)) {
        return false;
      }
    }
  }
  return true;
}

namespace {

bool IsSound(const TensorComparison& comparison) {
  const auto regions = static_cast<int64_t>(comparison.regions.size());
  for (const Layout& layout : comparison.regions) {
    if (!IsSound(layout)) return false;
  }
  for (const InstanceStats& instance : comparison.instances) {
    if (instance.region < 0 || instance.region >= regions) return false;
    if (instance.copies < 1) return false;
  }
  return true;
}

}  // namespace

bool IsSound(const TensorFacts& facts) {
  for (const LegFacts& leg : facts.legs) {
    if (!IsSound(leg.candidate)) return false;
  }
  return !facts.own || IsSound(*facts.own);
}

}  // namespace ttrace
