#include "src/compare/summaries/tensor_summary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "src/compare/compare_kernel.h"
#include "src/compare/error_sums.h"
#include "src/numeric/digest.h"

namespace ttrace {
namespace {

// Raised with every change of what a digest or a sketch is.
constexpr uint32_t kWithoutSample = 1;
constexpr uint32_t kWithSample = 2;  // which follows the buckets

// The same for all tensors: what a step left is compared with what it started
// from.
constexpr uint64_t kSeed = 0x7474726163650001;

struct Head {
  uint32_t kind = kWithoutSample;
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

struct SampleHead {
  uint32_t most = 0;
  uint32_t places = 0;
};
static_assert(sizeof(SampleHead) == 8);

// Of an element of a floating dtype.
constexpr size_t kMostBytes = 8;

// Elements whose sums are made while the digest has them in the second level of
// cache. Sums are added up per kCompareBlock, whose bits no cut between two
// blocks changes.
constexpr size_t kAtOnce = size_t{1} << 14;
static_assert(kAtOnce % kCompareBlock == 0);

// Elements of a part that another thread may do: some 20 times what it takes to
// wake one.
constexpr int64_t kElementsOfAPass = int64_t{1} << 19;
static_assert(kElementsOfAPass % kCompareBlock == 0);

// What a summary has of elements but the sketch: the same in any order.
struct Moments {
  TensorDigest digest;
  ErrorSums sums;

  void Add(DType dtype, uint64_t logical, const std::byte* elements,
           size_t count) {
    const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
    while (count > 0) {
      const size_t n =
          std::min(count, kAtOnce - static_cast<size_t>(logical % kAtOnce));
      AddDigest(elements, dtype, logical, n, &digest);
      const CompareOperand own{elements, dtype, 0, 1};
      CompareRows(own, own, {1, static_cast<int64_t>(n), logical, 0, 0}, &sums);
      logical += n;
      elements += n * itemsize;
      count -= n;
    }
  }
  void Merge(const Moments& other) {
    digest.Merge(other.digest);
    sums.Merge(other.sums);
  }
};

bool IsContiguous(const PlacedTensor& tensor) {
  int64_t next = 1;
  for (size_t d = tensor.strides.size(); d-- > 0;) {
    const int64_t size = tensor.layout.dims[d].local_size();
    if (size != 1 && tensor.strides[d] != next) return false;
    next *= size;
  }
  return true;
}

// All of a large tensor, if it is one run of elements back to back. Of many
// runs each would have to be looked at.
std::optional<LocalRun> OneRun(const PlacedTensor& tensor) {
  if (tensor.strides.size() != tensor.layout.dims.size()) return std::nullopt;
  const int64_t count = tensor.layout.local_count();
  std::optional<LocalRun> out;
  if (count < 2 * kElementsOfAPass || !IsContiguous(tensor)) return out;
  ForEachRun(tensor.layout, tensor.strides, [&](const LocalRun& run) {
    if (run.count == count) out = run;
  });
  return out;
}

std::vector<LocalRun> CutRun(LocalRun run) {
  constexpr auto kPart = static_cast<uint64_t>(kElementsOfAPass);
  std::vector<LocalRun> cuts;
  while (run.count > 0) {
    LocalRun cut = run;
    cut.count =
        std::min(run.count, static_cast<int64_t>(kPart - run.logical % kPart));
    cuts.push_back(cut);
    run.logical += static_cast<uint64_t>(cut.count);
    run.at += cut.count;
    run.count -= cut.count;
  }
  return cuts;
}

// What follows the buckets. The size of an element is what is left for one.
Result<ValueSample> DecodeSample(std::span<const std::byte> bytes) {
  SampleHead head;
  if (bytes.size() < sizeof(SampleHead)) return Corrupt("too short a sample");
  std::memcpy(&head, bytes.data(), sizeof(SampleHead));
  bytes = bytes.subspan(sizeof(SampleHead));
  const bool sized =
      head.most == kSamplePlaces && head.places <= head.most &&
      (head.places == 0 ? bytes.empty()
                        : bytes.size() % head.places == 0 &&
                              bytes.size() / head.places <= kMostBytes);
  if (!sized) return Corrupt("no sample of a tensor");
  ValueSample out;
  out.places.assign(head.places, -1);
  out.values.assign(bytes.begin(), bytes.end());
  return out;
}

}  // namespace

Status TensorSummary::Merge(const TensorSummary& other) {
  count += other.count;
  nonfinite += other.nonfinite;
  sum_sq += other.sum_sq;
  max_abs = std::fmax(max_abs, other.max_abs);
  digest.Merge(other.digest);
  if (sample && other.sample) {
    TTRACE_RETURN_IF_ERROR(sample->Merge(*other.sample));
  } else {
    sample.reset();
  }
  return sketch ? sketch->Merge(*other.sketch) : Done{};
}

Status TensorSummary::Place(const Layout& layout, DType dtype) {
  if (count != layout.local_count()) {
    return Corrupt("a summary of " + std::to_string(count) +
                   " elements, not of " + std::to_string(layout.local_count()));
  }
  if (!sample) return Done{};
  const SampleGrid grid(layout.global_shape());
  const std::vector<SampleGrid::Held> held =
      grid.HeldBy(layout, RowMajorStrides(layout.local_shape()));
  const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
  if (held.size() != sample->places.size() ||
      held.size() * itemsize != sample->values.size()) {
    return Corrupt("a sample of " + std::to_string(sample->places.size()) +
                   " elements, not of " + std::to_string(held.size()) +
                   " of dtype " + std::string(Info(dtype).torch_name));
  }
  sample->dtype = dtype;
  for (size_t i = 0; i < held.size(); ++i) sample->places[i] = held[i].place;
  return Done{};
}

Result<TensorSummary> Summarize(const PlacedTensor& tensor, size_t buckets,
                                const DoParts& parts) {
  if (!Info(tensor.dtype).floating) {
    return Error(ErrorCode::kUnsupported,
                 "summaries are of floating dtypes, not " +
                     std::string(Info(tensor.dtype).torch_name));
  }
  TensorSummary out;
  if (buckets > 0) out.sketch.emplace(kSeed, buckets);
  // A sketch is added up in the order of the elements: one part is all of it.
  const size_t sketches = buckets > 0 ? 1 : 0;
  const std::optional<LocalRun> run = OneRun(tensor);
  const auto cuts = run ? CutRun(*run) : std::vector<LocalRun>();
  std::vector<Moments> moments(std::max<size_t>(cuts.size(), 1));
  Status summed = Done{};
  Status sketched = Done{};
  parts(sketches + moments.size(), [&](size_t i) {
    if (i < sketches) {
      sketched = out.sketch->Add(tensor);
    } else if (run) {
      const LocalRun& cut = cuts[i - sketches];
      const int64_t at = cut.at * Info(tensor.dtype).itemsize;
      moments[i - sketches].Add(tensor.dtype, cut.logical, tensor.data + at,
                                static_cast<size_t>(cut.count));
    } else {
      summed = ForEachPackedRun(
          tensor,
          [&](uint64_t logical, const std::byte* elements, size_t count) {
            moments[0].Add(tensor.dtype, logical, elements, count);
          });
    }
  });
  TTRACE_RETURN_IF_ERROR(summed);
  TTRACE_RETURN_IF_ERROR(sketched);
  for (size_t i = 1; i < moments.size(); ++i) moments[0].Merge(moments[i]);
  const ErrorStats stats = moments[0].sums.Stats();
  out.digest = moments[0].digest;
  out.count = stats.count;
  out.nonfinite = stats.nonfinite_ref;
  out.sum_sq = stats.sum_sq_ref;
  out.max_abs = stats.max_abs_ref;
  if (buckets > 0) out.sample = TakeSample(tensor);
  return out;
}

int64_t EncodedSummaryBytes(size_t buckets, const Layout& layout, DType dtype) {
  if (buckets == 0) return sizeof(Head);
  const SampleGrid grid(layout.global_shape());
  return static_cast<int64_t>(sizeof(Head) + buckets * sizeof(float) +
                              sizeof(SampleHead)) +
         grid.CountHeldBy(layout) * Info(dtype).itemsize;
}

std::vector<std::byte> EncodeSummary(const TensorSummary& summary) {
  std::vector<std::byte> out;
  const auto add = [&](const void* from, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(from);
    out.insert(out.end(), begin, begin + bytes);
  };
  Head head;
  head.kind = summary.sample ? kWithSample : kWithoutSample;
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
  add(&head, sizeof(Head));
  add(buckets.data(), buckets.size() * sizeof(float));
  if (summary.sample) {
    const SampleHead sample = {
        static_cast<uint32_t>(kSamplePlaces),
        static_cast<uint32_t>(summary.sample->places.size())};
    add(&sample, sizeof(SampleHead));
    add(summary.sample->values.data(), summary.sample->values.size());
  }
  return out;
}

Result<TensorSummary> DecodeSummary(std::span<const std::byte> bytes) {
  Head head;
  if (bytes.size() < sizeof(Head)) return Corrupt("too short for a summary");
  std::memcpy(&head, bytes.data(), sizeof(Head));
  if (head.kind != kWithoutSample && head.kind != kWithSample) {
    return Error(ErrorCode::kUnsupported,
                 "a summary of kind " + std::to_string(head.kind) +
                     ", made by another version of ttrace");
  }
  const bool sized = head.buckets == 0 || (std::has_single_bit(head.buckets) &&
                                           head.buckets >= kMinSketchBuckets &&
                                           head.buckets <= kMaxSketchBuckets);
  const size_t sketch_end = sizeof(Head) + head.buckets * sizeof(float);
  if (!sized || head.count < 0 || head.nonfinite < 0 ||
      head.nonfinite > head.count || !(head.sum_sq >= 0) ||
      !(head.max_abs >= 0) || bytes.size() < sketch_end ||
      (head.kind == kWithoutSample && bytes.size() != sketch_end)) {
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
  if (head.kind == kWithSample) {
    TTRACE_ASSIGN_OR_RETURN(out.sample,
                            DecodeSample(bytes.subspan(sketch_end)));
    if (static_cast<int64_t>(out.sample->places.size()) > out.count) {
      return Corrupt("a sample of more than there is");
    }
  }
  return out;
}

}  // namespace ttrace
