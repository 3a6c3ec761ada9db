#include "src/compare/tensor_summary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "src/compare/compare_kernel.h"
#include "src/compare/error_sums.h"

namespace ttrace {
namespace {

// Raised with every change of what a digest or a sketch is.
constexpr uint32_t kKind = 1;

// The same for all tensors: what a step left is compared with what it started
// from.
constexpr uint64_t kSeed = 0x7474726163650001;

struct Head {
  uint32_t kind = kKind;
  uint32_t buckets = 0;
  int64_t count = 0;
  int64_t nonfinite = 0;
  double sum_sq = 0;
  double max_abs = 0;
  uint64_t positional[2] = {};
  uint64_t multiset = 0;
};
static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(Head) == 64);  // no padding

Error Corrupt(std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message));
}

}  // namespace

Status TensorSummary::Merge(const TensorSummary& other) {
  count += other.count;
  nonfinite += other.nonfinite;
  sum_sq += other.sum_sq;
  max_abs = std::fmax(max_abs, other.max_abs);
  digest.Merge(other.digest);
  return sketch ? sketch->Merge(*other.sketch) : Done{};
}

Result<TensorSummary> Summarize(const PlacedTensor& tensor, size_t buckets) {
  if (!Info(tensor.dtype).floating) {
    return Error(ErrorCode::kUnsupported,
                 "summaries are of floating dtypes, not " +
                     std::string(Info(tensor.dtype).torch_name));
  }
  TensorSummary out;
  TTRACE_RETURN_IF_ERROR(AddDigest(tensor, &out.digest));
  ErrorSums sums;
  TTRACE_RETURN_IF_ERROR(ForEachPackedRun(
      tensor, [&](uint64_t logical, const std::byte* elements, size_t count) {
        const CompareOperand own{elements, tensor.dtype, 0, 1};
        CompareRows(own, own, {1, static_cast<int64_t>(count), logical, 0, 0},
                    &sums);
      }));
  const ErrorStats stats = sums.Stats();
  out.count = stats.count;
  out.nonfinite = stats.nonfinite_ref;
  out.sum_sq = stats.sum_sq_ref;
  out.max_abs = stats.max_abs_ref;
  if (buckets > 0) {
    out.sketch.emplace(kSeed, buckets);
    TTRACE_RETURN_IF_ERROR(out.sketch->Add(tensor));
  }
  return out;
}

int64_t EncodedSummaryBytes(size_t buckets) {
  return static_cast<int64_t>(sizeof(Head) + buckets * sizeof(float));
}

std::vector<std::byte> EncodeSummary(const TensorSummary& summary) {
  Head head;
  head.count = summary.count;
  head.nonfinite = summary.nonfinite;
  head.sum_sq = summary.sum_sq;
  head.max_abs = summary.max_abs;
  head.positional[0] = summary.digest.positional[0];
  head.positional[1] = summary.digest.positional[1];
  head.multiset = summary.digest.multiset;
  std::vector<float> buckets;
  if (summary.sketch) {
    for (const double bucket : summary.sketch->buckets()) {
      buckets.push_back(static_cast<float>(bucket));
    }
  }
  head.buckets = static_cast<uint32_t>(buckets.size());
  std::vector<std::byte> out(
      static_cast<size_t>(EncodedSummaryBytes(buckets.size())));
  std::memcpy(out.data(), &head, sizeof(Head));
  if (!buckets.empty()) {
    std::memcpy(out.data() + sizeof(Head), buckets.data(),
                buckets.size() * sizeof(float));
  }
  return out;
}

Result<TensorSummary> DecodeSummary(std::span<const std::byte> bytes) {
  Head head;
  if (bytes.size() < sizeof(Head)) return Corrupt("too short for a summary");
  std::memcpy(&head, bytes.data(), sizeof(Head));
  if (head.kind != kKind) {
    return Error(ErrorCode::kUnsupported,
                 "a summary of kind " + std::to_string(head.kind) +
                     ", made by another version of ttrace");
  }
  const bool sized = head.buckets == 0 || (std::has_single_bit(head.buckets) &&
                                           head.buckets >= kMinSketchBuckets &&
                                           head.buckets <= kMaxSketchBuckets);
  if (!sized || head.count < 0 || head.nonfinite < 0 ||
      head.nonfinite > head.count || !(head.sum_sq >= 0) ||
      !(head.max_abs >= 0) ||
      static_cast<int64_t>(bytes.size()) != EncodedSummaryBytes(head.buckets)) {
    return Corrupt("no summary of a tensor");
  }
  TensorSummary out;
  out.count = head.count;
  out.nonfinite = head.nonfinite;
  out.sum_sq = head.sum_sq;
  out.max_abs = head.max_abs;
  out.digest.positional = {head.positional[0], head.positional[1]};
  out.digest.multiset = head.multiset;
  out.digest.count = head.count;
  if (head.buckets > 0) {
    std::vector<float> floats(head.buckets);
    std::memcpy(floats.data(), bytes.data() + sizeof(Head),
                floats.size() * sizeof(float));
    out.sketch = Sketch(kSeed, {floats.begin(), floats.end()});
  }
  return out;
}

}  // namespace ttrace
