#include "src/compare/tile_reader.h"

#include <algorithm>
#include <span>
#include <string>

#include "src/numeric/widen.h"

namespace ttrace {
namespace {

// Reading across a gap of this many bytes costs no more than another pread. A
// larger one is never read, however small it is beside what lies around it: of
// a matrix cut by columns each part would read all of the rows.
constexpr int64_t kGapWorthReading = 16 << 10;
// ... but a block's buffer stays within a small multiple of the block.
constexpr int64_t kMaxWaste = 4;
constexpr int64_t kSmallBuffer = 256 << 10;

std::vector<int64_t> PackedStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * sizes[d];
  }
  return strides;
}

// How a block lies in memory after reading: axes from `whole` on keep the
// file's strides, because one pread covers them, gaps included; the others are
// packed.
struct ReadPlan {
  size_t whole = 0;
  int64_t span = 1;   // elements of one pread
  int64_t reads = 1;  // number of them
};

ReadPlan PlanRead(const LocalBlock& block, int64_t itemsize) {
  int64_t used = 1;
  int64_t total = 1;
  for (const int64_t size : block.sizes) total *= size;
  ReadPlan plan;
  plan.whole = block.sizes.size();
  for (size_t d = block.sizes.size(); d-- > 0;) {
    const int64_t gap = block.strides[d] - plan.span;
    if (block.sizes[d] > 1 && gap * itemsize > kGapWorthReading) break;
    const int64_t span = (block.sizes[d] - 1) * block.strides[d] + plan.span;
    used *= block.sizes[d];
    const int64_t buffer = span * (total / used) * itemsize;
    const bool dense = span <= kMaxWaste * used;
    const bool worth =
        span * itemsize <= kGapWorthReading * block.sizes[d] &&
        buffer <= std::max(kMaxWaste * total * itemsize, kSmallBuffer);
    if (!dense && !worth) break;
    plan.whole = d;
    plan.span = span;
  }
  for (size_t d = 0; d < plan.whole; ++d) plan.reads *= block.sizes[d];
  return plan;
}

LocalBlock BlockAt(int64_t begin, const Tile& tile, int64_t Axis::*stride) {
  LocalBlock block{begin, {}, {}};
  for (const Axis& axis : tile.axes) {
    block.sizes.push_back(axis.size);
    block.strides.push_back(axis.*stride);
  }
  return block;
}

}  // namespace

int64_t LocalBlock::count() const {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

int64_t LocalBlock::span() const {
  int64_t n = 1;
  for (size_t d = 0; d < sizes.size(); ++d) n += (sizes[d] - 1) * strides[d];
  return n;
}

LocalBlock BlockInA(const Tile& tile) {
  return BlockAt(tile.a_begin, tile, &Axis::a_stride);
}

LocalBlock BlockInB(const Tile& tile) {
  return BlockAt(tile.b_begin, tile, &Axis::b_stride);
}

Status TileReader::ReadPiece(const Trace& trace, const Record& record,
                             const LocalBlock& block,
                             const CachedRecord* cached, BlockView* view) {
  const int64_t itemsize = Info(record.dtype()).itemsize;
  if (cached != nullptr) {
    view->data = cached->Find(block.begin * itemsize,
                              (block.begin + block.span()) * itemsize);
    view->dtype = record.dtype();
    view->strides = block.strides;
    if (view->data != nullptr) return Done{};
  }
  const ReadPlan plan = PlanRead(block, itemsize);
  const int64_t bytes = plan.span * itemsize;
  std::byte* out = bytes_.Reserve(static_cast<size_t>(plan.reads * bytes));
  view->data = out;
  view->dtype = record.dtype();
  view->strides = block.strides;
  int64_t packed = plan.span;
  for (size_t d = plan.whole; d-- > 0;) {
    view->strides[d] = packed;
    packed *= block.sizes[d];
  }

  // One pseudo-row per pread: the axes before `whole`.
  std::vector<int64_t> sizes(
      block.sizes.begin(),
      block.sizes.begin() + static_cast<std::ptrdiff_t>(plan.whole));
  sizes.push_back(1);
  Status status = Done{};
  ForEachRow(
      sizes, block.strides, view->strides, [&](int64_t from, int64_t to) {
        if (!status.ok()) return;
        status = trace.Read(record, (block.begin + from) * itemsize,
                            std::span<std::byte>(out + to * itemsize,
                                                 static_cast<size_t>(bytes)));
      });
  return NamedPiece(status, record);
}

Result<BlockView> TileReader::Read(const Instance& instance,
                                   const LocalBlock& block,
                                   std::span<CachedRecord* const> cached) {
  const auto cached_of = [&](size_t term) {
    return cached.empty() ? nullptr : cached[term];
  };
  BlockView view;
  const Term& first = instance.terms.front();
  if (instance.terms.size() == 1) {
    TTRACE_RETURN_IF_ERROR(
        ReadPiece(*instance.trace, first.record, block, cached_of(0), &view));
    view.scale = first.weight;
    return view;
  }
  // With one weight for all, as it nearly always is, it is applied once, after
  // the sum: a mean is then rounded like one.
  const bool one_weight = std::all_of(
      instance.terms.begin(), instance.terms.end(),
      [&](const Term& term) { return term.weight == first.weight; });
  const std::vector<int64_t> packed = PackedStrides(block.sizes);
  const auto count = static_cast<size_t>(packed[0] * block.sizes[0]);
  const auto cols = static_cast<size_t>(block.sizes.back());
  // operator new aligns for double.
  auto* sum = reinterpret_cast<double*>(sum_.Reserve(count * sizeof(double)));
  std::fill(sum, sum + count, 0.0);
  for (size_t i = 0; i < instance.terms.size(); ++i) {
    const Term& term = instance.terms[i];
    TTRACE_RETURN_IF_ERROR(
        ReadPiece(*instance.trace, term.record, block, cached_of(i), &view));
    const double weight = one_weight ? 1 : term.weight;
    const int64_t itemsize = Info(view.dtype).itemsize;
    ForEachRow(block.sizes, view.strides, packed,
               [&](int64_t from, int64_t to) {
                 AddWidened(view.dtype, view.data + from * itemsize, cols,
                            weight, sum + to);
               });
  }
  view.data = reinterpret_cast<const std::byte*>(sum);
  view.dtype = DType::kF64;
  view.scale = one_weight ? first.weight : 1;
  view.strides = packed;
  return view;
}

}  // namespace ttrace
