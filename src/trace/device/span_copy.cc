#include "src/trace/device/span_copy.h"

#include <algorithm>

namespace ttrace {
namespace {

struct Dim {
  size_t index;  // in the shape
  size_t size;
  size_t stride;  // in bytes, without its sign
};

// Those of more than one element that lie apart, the smallest stride first.
// False: too far apart.
bool Apart(const Shape& shape, std::span<const int64_t> strides,
           size_t itemsize, std::vector<Dim>* out) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1 || strides[i] == 0) continue;
    Dim dim = {i, static_cast<size_t>(shape[i]), 0};
    const auto stride = static_cast<uint64_t>(strides[i]);
    if (__builtin_mul_overflow(strides[i] < 0 ? 0 - stride : stride, itemsize,
                               &dim.stride)) {
      return false;
    }
    out->push_back(dim);
  }
  std::stable_sort(out->begin(), out->end(), [](const Dim& a, const Dim& b) {
    return a.stride < b.stride;
  });
  return true;
}

// From the first byte of `span` bytes to the last of its repetitions.
bool Extend(const Dim& dim, size_t* span) {
  size_t steps = 0;
  return !__builtin_mul_overflow(dim.size - 1, dim.stride, &steps) &&
         !__builtin_add_overflow(*span, steps, span) &&
         *span <= static_cast<size_t>(PTRDIFF_MAX);
}

}  // namespace

std::optional<SpanCopy> PlanSpanCopy(const Shape& shape,
                                     std::span<const int64_t> strides,
                                     int itemsize) {
  const auto size = static_cast<size_t>(itemsize);
  std::vector<Dim> dims;
  if (!Apart(shape, strides, size, &dims)) return std::nullopt;
  size_t span = size;
  std::vector<size_t> spans;  // of the dimensions before each
  for (const Dim& dim : dims) {
    spans.push_back(span);
    if (!Extend(dim, &span)) return std::nullopt;
  }
  // Dimensions from this one on step from row to row: they lie behind a gap,
  // and at one pitch.
  size_t rows = dims.size();
  for (size_t i = dims.size(); i-- > 0;) {
    const bool joins = i + 1 == dims.size() ||
                       dims[i].size * dims[i].stride == dims[i + 1].stride;
    if (!joins || dims[i].stride <= spans[i]) break;
    rows = i;
  }
  SpanCopy plan;
  plan.width = span;
  plan.height = 1;
  if (rows < dims.size() && dims[rows].stride <= kLargestPitch) {
    plan.width = spans[rows];
    plan.pitch = dims[rows].stride;
    for (size_t i = rows; i < dims.size(); ++i) plan.height *= dims[i].size;
  } else {
    rows = dims.size();
    plan.pitch = plan.width;
  }
  plan.strides.assign(shape.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    const Dim& dim = dims[i];
    const size_t stride =
        i < rows ? dim.stride : dim.stride / plan.pitch * plan.width;
    const bool down = strides[dim.index] < 0;
    const auto elements = static_cast<int64_t>(stride / size);
    plan.strides[dim.index] = down ? -elements : elements;
    if (!down) continue;
    plan.first -= static_cast<std::ptrdiff_t>((dim.size - 1) * dim.stride);
    plan.origin += (dim.size - 1) * stride;
  }
  return plan;
}

}  // namespace ttrace
