#include "src/numeric/layout_runs.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// Of elements that are gathered at once: what the first level of cache holds.
constexpr size_t kGatheredBytes = 4096;

struct Axis {
  std::vector<Segment> segments;
  int64_t global = 1;
  int64_t stride = 1;
};

// The last two dimensions as one, if the last is whole and they lie one behind
// the other.
bool Merge(std::vector<Axis>* axes) {
  const Axis& last = axes->back();
  Axis& before = (*axes)[axes->size() - 2];
  if (last.segments.size() != 1 || last.segments.front().begin != 0 ||
      last.segments.front().size != last.global ||
      before.stride != last.stride * last.global) {
    return false;
  }
  for (Segment& segment : before.segments) {
    segment.begin *= last.global;
    segment.size *= last.global;
  }
  before.global *= last.global;
  before.stride = last.stride;
  axes->pop_back();
  return true;
}

class Walk {
 public:
  Walk(const Layout& layout, std::span<const int64_t> strides,
       const std::function<void(const LocalRun&)>& visit)
      : visit_(visit) {
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      axes_.push_back(
          {layout.dims[d].segments, layout.dims[d].global_size, strides[d]});
    }
    if (axes_.empty()) axes_.push_back({{{0, 1}}, 1, 1});
    while (axes_.size() > 1 && Merge(&axes_)) {
    }
    logical_strides_.assign(axes_.size(), 1);
    for (size_t d = axes_.size(); d-- > 1;) {
      logical_strides_[d - 1] =
          logical_strides_[d] * static_cast<uint64_t>(axes_[d].global);
    }
  }

  void Dimension(size_t d, uint64_t logical, int64_t at) const {
    const Axis& axis = axes_[d];
    for (const Segment& segment : axis.segments) {
      uint64_t index =
          logical + static_cast<uint64_t>(segment.begin) * logical_strides_[d];
      if (d + 1 == axes_.size()) {
        visit_({index, at, segment.size, axis.stride});
        at += segment.size * axis.stride;
        continue;
      }
      for (int64_t i = 0; i < segment.size; ++i) {
        Dimension(d + 1, index, at);
        at += axis.stride;
        index += logical_strides_[d];
      }
    }
  }

 private:
  const std::function<void(const LocalRun&)>& visit_;
  std::vector<Axis> axes_;
  std::vector<uint64_t> logical_strides_;
};

void Gather(const std::byte* from, std::ptrdiff_t stride, size_t itemsize,
            size_t count, std::byte* to) {
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(to, from, itemsize);
    from += stride;
    to += itemsize;
  }
}

}  // namespace

void ForEachRun(const Layout& layout, std::span<const int64_t> strides,
                const std::function<void(const LocalRun&)>& visit) {
  if (layout.local_count() == 0) return;
  Walk(layout, strides, visit).Dimension(0, 0, 0);
}

Status ForEachPackedRun(
    const PlacedTensor& tensor,
    const std::function<void(uint64_t logical, const std::byte* elements,
                             size_t count)>& visit) {
  if (tensor.strides.size() != tensor.layout.dims.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 "the tensor has " + std::to_string(tensor.strides.size()) +
                     " dimensions and its layout " +
                     std::to_string(tensor.layout.dims.size()));
  }
  const auto itemsize = static_cast<size_t>(Info(tensor.dtype).itemsize);
  const auto bytes = static_cast<std::ptrdiff_t>(itemsize);
  std::byte gathered[kGatheredBytes];
  ForEachRun(tensor.layout, tensor.strides, [&](const LocalRun& run) {
    const std::byte* from = tensor.data + run.at * bytes;
    const auto count = static_cast<size_t>(run.count);
    if (run.stride == 1 || count == 1) return visit(run.logical, from, count);
    for (size_t i = 0; i < count;) {
      const size_t n = std::min(count - i, kGatheredBytes / itemsize);
      const auto at = static_cast<int64_t>(i) * run.stride;
      Gather(from + at * bytes, run.stride * bytes, itemsize, n, gathered);
      visit(run.logical + i, gathered, n);
      i += n;
    }
  });
  return Done{};
}

}  // namespace ttrace
