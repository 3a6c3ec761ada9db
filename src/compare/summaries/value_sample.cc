#include "src/compare/summaries/value_sample.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

int64_t Product(const std::vector<int64_t>& counts) {
  int64_t product = 1;
  for (const int64_t count : counts) product *= count;
  return product;
}

// How many indices of each dimension. REQUIRES: no dimension is empty.
std::vector<int64_t> CountsOf(const Shape& shape, int64_t most) {
  std::vector<int64_t> counts(shape.size(), 1);
  for (;;) {
    std::optional<size_t> next;
    for (size_t d = shape.size(); d-- > 0;) {
      if (counts[d] < shape[d] && (!next || counts[d] < counts[*next])) {
        next = d;
      }
    }
    if (!next) return counts;
    std::vector<int64_t> more = counts;
    more[*next] = std::min(2 * counts[*next], shape[*next]);
    if (Product(more) > most) return counts;
    counts = std::move(more);
  }
}

// floor(i n / k), also where i n has no room. REQUIRES: i < k
int64_t Share(int64_t i, int64_t n, int64_t k) {
  return n / k * i + n % k * i / k;
}

// The local index of a global one; -1: it is not held.
int64_t LocalIndex(const DimLayout& dim, int64_t index) {
  int64_t local = 0;
  for (const Segment& segment : dim.segments) {
    if (index >= segment.begin && index - segment.begin < segment.size) {
      return local + index - segment.begin;
    }
    local += segment.size;
  }
  return -1;
}

}  // namespace

SampleGrid::SampleGrid(const Shape& shape) : indices_(shape.size()) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  const std::vector<int64_t> counts = CountsOf(shape, kSamplePlaces);
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t middle = shape[d] / counts[d] / 2;
    for (int64_t i = 0; i < counts[d]; ++i) {
      indices_[d].push_back(Share(i, shape[d], counts[d]) + middle);
    }
  }
}

int64_t SampleGrid::count() const {
  int64_t count = 1;
  for (const auto& dim : indices_) count *= static_cast<int64_t>(dim.size());
  return count;
}

Shape SampleGrid::at(int64_t place) const {
  Shape out(indices_.size(), 0);
  for (size_t d = indices_.size(); d-- > 0;) {
    const auto count = static_cast<int64_t>(indices_[d].size());
    out[d] = indices_[d][static_cast<size_t>(place % count)];
    place /= count;
  }
  return out;
}

std::vector<SampleGrid::Held> SampleGrid::HeldBy(
    const Layout& layout, std::span<const int64_t> strides) const {
  std::vector<Held> held = {{0, 0}};
  for (size_t d = 0; d < indices_.size(); ++d) {
    const auto count = static_cast<int64_t>(indices_[d].size());
    std::vector<Held> next;
    for (const Held& outer : held) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t local =
            LocalIndex(layout.dims[d], indices_[d][static_cast<size_t>(i)]);
        if (local < 0) continue;
        next.push_back(
            {outer.place * count + i, outer.local + local * strides[d]});
      }
    }
    held = std::move(next);
  }
  return held;
}

int64_t SampleGrid::CountHeldBy(const Layout& layout) const {
  int64_t count = 1;
  for (size_t d = 0; d < indices_.size(); ++d) {
    count *= std::count_if(
        indices_[d].begin(), indices_[d].end(),
        [&](int64_t index) { return LocalIndex(layout.dims[d], index) >= 0; });
  }
  return count;
}

Status ValueSample::Merge(const ValueSample& other) {
  if (other.dtype != dtype) {
    return Error(ErrorCode::kInvalidArgument, "samples of different dtypes");
  }
  const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
  ValueSample both;
  both.dtype = dtype;
  both.places.reserve(places.size() + other.places.size());
  both.values.reserve(values.size() + other.values.size());
  size_t a = 0;
  size_t b = 0;
  while (a < places.size() || b < other.places.size()) {
    const bool own = b == other.places.size() ||
                     (a < places.size() && places[a] <= other.places[b]);
    if (own && b < other.places.size() && places[a] == other.places[b]) {
      return Error(ErrorCode::kInvalidArgument,
                   "samples of parts that overlap");
    }
    const ValueSample& from = own ? *this : other;
    const size_t i = own ? a++ : b++;
    both.places.push_back(from.places[i]);
    const std::byte* value = from.values.data() + i * itemsize;
    both.values.insert(both.values.end(), value, value + itemsize);
  }
  *this = std::move(both);
  return Done{};
}

ValueSample TakeSample(const PlacedTensor& tensor) {
  ValueSample out;
  out.dtype = tensor.dtype;
  const int64_t itemsize = Info(tensor.dtype).itemsize;
  const SampleGrid grid(tensor.layout.global_shape());
  for (const SampleGrid::Held& held :
       grid.HeldBy(tensor.layout, tensor.strides)) {
    out.places.push_back(held.place);
    const std::byte* value = tensor.data + held.local * itemsize;
    out.values.insert(out.values.end(), value, value + itemsize);
  }
  return out;
}

}  // namespace ttrace
