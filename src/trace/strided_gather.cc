#include "src/trace/strided_gather.h"

#include <algorithm>
#include <cstring>

#include "src/base/check.h"

namespace ttrace {
namespace {

// memcpy of a constant size: memory of a tensor need not be aligned, and the
// compiler makes it one load and one store.
template <int kItemsize>
void CopyRun(const std::byte* from, int64_t stride, int64_t count,
             std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * kItemsize, from + i * stride, kItemsize);
  }
}

void CopyRun(const std::byte* from, int64_t stride, int64_t count, int itemsize,
             std::byte* to) {
  if (stride == itemsize) {
    std::memcpy(to, from, static_cast<size_t>(count * itemsize));
    return;
  }
  switch (itemsize) {
    case 1:
      return CopyRun<1>(from, stride, count, to);
    case 2:
      return CopyRun<2>(from, stride, count, to);
    case 4:
      return CopyRun<4>(from, stride, count, to);
    case 8:
      return CopyRun<8>(from, stride, count, to);
    default:
      TTRACE_CHECK(false, "no element has this size");
  }
}

}  // namespace

StridedGather::StridedGather(const std::byte* data, const Shape& shape,
                             std::span<const int64_t> strides, int itemsize)
    : data_(data), itemsize_(itemsize) {
  TTRACE_CHECK(strides.size() == shape.size(), "one stride per dimension");
  // Before the product, which may overflow where another size is 0.
  for (const int64_t size : shape) {
    if (size == 0) left_ = 0;
  }
  if (left_ == 0) return;
  for (size_t d = 0; d < shape.size(); ++d) {
    left_ *= shape[d];
    if (shape[d] == 1) continue;  // Its stride means nothing.
    const int64_t stride = strides[d] * itemsize;
    if (!dims_.empty() && dims_.back().stride == stride * shape[d]) {
      dims_.back() = {dims_.back().size * shape[d], stride};
    } else {
      dims_.push_back({shape[d], stride});
    }
  }
  contiguous_ =
      dims_.empty() || (dims_.size() == 1 && dims_.front().stride == itemsize);
  index_.assign(dims_.size(), 0);
}

void StridedGather::Step() {
  // The last dimension has just been finished: carry into the others.
  for (size_t d = dims_.size(); d-- > 0;) {
    if (index_[d] < dims_[d].size) return;
    offset_ -= index_[d] * dims_[d].stride;
    index_[d] = 0;
    if (d > 0) {
      ++index_[d - 1];
      offset_ += dims_[d - 1].stride;
    }
  }
}

std::span<const std::byte> StridedGather::Next() {
  if (left_ == 0) return {};
  if (contiguous_) {
    const auto bytes = static_cast<size_t>(left_ * itemsize_);
    left_ = 0;
    return {data_, bytes};
  }
  const int64_t count = std::min(left_, kTileBytes / itemsize_);
  tile_.resize(static_cast<size_t>(count * itemsize_));
  const Dim& inner = dims_.back();
  for (int64_t done = 0; done < count;) {
    const int64_t run = std::min(count - done, inner.size - index_.back());
    CopyRun(data_ + offset_, inner.stride, run, itemsize_,
            tile_.data() + done * itemsize_);
    done += run;
    index_.back() += run;
    offset_ += run * inner.stride;
    Step();
  }
  left_ -= count;
  return tile_;
}

}  // namespace ttrace
