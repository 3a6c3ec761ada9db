#include "src/numeric/sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "src/base/check.h"
#include "src/numeric/few_elements.h"
#include "src/numeric/sketch_kernel.h"
#include "src/numeric/widen.h"

namespace ttrace {
namespace {

// Elements whose buckets are added up in fp32.
constexpr size_t kElementsOfAPart = size_t{1} << 14;
// Elements that are converted at once where the kernel cannot read them.
constexpr size_t kConverted = 1024;
// Half of the width of an estimate's interval, in deviations of sqrt(1 / 2m):
// 3.29 would hold 999 of 1000 normal errors; real ones have a longer tail.
constexpr double kDeviations = 3.8;

bool IsSize(size_t buckets) {
  return std::has_single_bit(buckets) && buckets >= kMinSketchBuckets &&
         buckets <= kMaxSketchBuckets;
}

// The buckets of one part, and how many elements went into them.
class Part {
 public:
  Part(uint64_t seed, double scale, std::vector<double>* sums)
      : seed_(seed), scale_(scale), sums_(sums) {
    rows_.resize(sums->size() / kSketchLine);
  }

  void Run(DType dtype, uint64_t logical, const std::byte* p, size_t count) {
    const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
    for (size_t i = 0; i < count;) {
      const size_t n = std::min(count - i, kElementsOfAPart - elements_);
      SketchRun(dtype, p + i * itemsize, logical + i, n, seed_, rows_.size(),
                rows_.data());
      i += n;
      elements_ += n;
      if (elements_ == kElementsOfAPart) Flush();
    }
  }

  void Flush() {
    AddRows(rows_.data(), rows_.size(), scale_, sums_->data());
    elements_ = 0;
  }

 private:
  uint64_t seed_;
  double scale_;
  std::vector<double>* sums_;
  std::vector<SketchRow> rows_;
  size_t elements_ = 0;
};

// Elements of a dtype that the kernel does not read, as those of one it does.
void RunConverted(DType dtype, uint64_t logical, const std::byte* p,
                  size_t count, Part* part) {
  const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
  for (size_t i = 0; i < count; i += kConverted) {
    const size_t n = std::min(kConverted, count - i);
    const std::byte* from = p + i * itemsize;
    if (dtype == DType::kF64) {
      float floats[kConverted];
      for (size_t k = 0; k < n; ++k) {
        floats[k] = static_cast<float>(LoadAs<double>(from + k * itemsize));
      }
      part->Run(DType::kF32, logical + i,
                reinterpret_cast<const std::byte*>(floats), n);
    } else {
      uint16_t wider[kConverted];
      WidenF8(dtype, from, n, wider);
      part->Run(WiderF8(dtype), logical + i,
                reinterpret_cast<const std::byte*>(wider), n);
    }
  }
}

Status CheckAlike(const Sketch& a, const Sketch& b) {
  if (a.seed() == b.seed() && a.buckets().size() == b.buckets().size()) {
    return Done{};
  }
  return Error(ErrorCode::kInvalidArgument,
               "sketches of " + std::to_string(a.buckets().size()) + " and " +
                   std::to_string(b.buckets().size()) +
                   " buckets, or of two seeds");
}

}  // namespace

Sketch::Sketch(uint64_t seed, size_t buckets)
    : seed_(seed), buckets_(buckets, 0.0) {
  TTRACE_CHECK(IsSize(buckets), "a sketch's size");
}

Sketch::Sketch(uint64_t seed, std::vector<double> buckets)
    : seed_(seed), buckets_(std::move(buckets)) {
  TTRACE_CHECK(IsSize(buckets_.size()), "a sketch's size");
}

double SketchRounding(size_t buckets) {
  const double terms = std::max(1.0, static_cast<double>(kElementsOfAPart) /
                                         static_cast<double>(buckets));
  return 0x1p-24 * std::sqrt(terms / 6);
}

Status Sketch::Add(const PlacedTensor& tensor, double scale) {
  const DTypeInfo info = Info(tensor.dtype);
  if (!info.floating) {
    return Error(ErrorCode::kUnsupported,
                 "a sketch is only defined for floating dtypes, not " +
                     std::string(info.torch_name));
  }
  const bool direct = info.itemsize == 2 || info.itemsize == 4;
  Part part(seed_, scale, &buckets_);
  TTRACE_RETURN_IF_ERROR(ForEachPackedRun(
      tensor, [&](uint64_t logical, const std::byte* p, size_t count) {
        if (direct) {
          part.Run(tensor.dtype, logical, p, count);
        } else {
          RunConverted(tensor.dtype, logical, p, count, &part);
        }
      }));
  part.Flush();
  return Done{};
}

Status Sketch::Merge(const Sketch& other, double scale) {
  TTRACE_RETURN_IF_ERROR(CheckAlike(*this, other));
  for (size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i] += scale * other.buckets_[i];
  }
  return Done{};
}

Result<Sketch> Sketch::Fold(size_t buckets) const {
  if (!IsSize(buckets) || buckets > buckets_.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 "a sketch of " + std::to_string(buckets_.size()) +
                     " buckets cannot be folded to " + std::to_string(buckets));
  }
  Sketch out(seed_, buckets);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    out.buckets_[i % buckets] += buckets_[i];
  }
  return out;
}

Result<SketchEstimate> EstimateDistance(const Sketch& a, const Sketch& b) {
  TTRACE_RETURN_IF_ERROR(CheckAlike(a, b));
  std::vector<double> squares(a.buckets().size());
  double square = 0;
  for (size_t i = 0; i < squares.size(); ++i) {
    const double difference = a.buckets()[i] - b.buckets()[i];
    squares[i] = difference * difference;
    square += squares[i];
  }
  const double width =
      kDeviations / std::sqrt(2 * static_cast<double>(squares.size()));
  const double value = std::sqrt(square);
  const SketchEstimate many{value, value / (1 + width),
                            width < 1
                                ? value / (1 - width)
                                : std::numeric_limits<double>::infinity()};
  const FewElements few = IfFewElementsDiffer(std::move(squares));
  return SketchEstimate{
      value,
      std::min(many.low, std::sqrt(std::max(0.0, square - few.too_large))),
      std::max(many.high, std::sqrt(square + few.too_small))};
}

Result<SketchEstimate> EstimateDistance(const Sketch& a, double norm_a,
                                        const Sketch& b, double norm_b) {
  TTRACE_ASSIGN_OR_RETURN(SketchEstimate out, EstimateDistance(a, b));
  // Both sketches round; twice the rms, for a bound.
  const double rounding = 2 * std::sqrt(2.0) *
                          SketchRounding(a.buckets().size()) *
                          std::max(norm_a, norm_b);
  out.low *= std::max(0.0, 1 - rounding / std::max(out.value, rounding));
  out.high += rounding;
  return out;
}

}  // namespace ttrace
