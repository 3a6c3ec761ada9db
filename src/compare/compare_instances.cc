#include "src/compare/compare_instances.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/for_each.h"
#include "src/compare/compare_kernel.h"

namespace ttrace {
namespace {

// The kernel takes two axes; outer ones are walked here.
void CompareViews(const std::vector<Axis>& axes, int64_t logical_begin,
                  const BlockView& ref, const BlockView& cand,
                  double element_scale, ErrorSums* sums) {
  const size_t n = axes.size();
  const Axis row_axis = n >= 2 ? axes[n - 2] : Axis{};
  CompareExtent extent;
  extent.rows = n >= 2 ? row_axis.size : 1;
  extent.cols = axes[n - 1].size;
  extent.logical_stride = static_cast<uint64_t>(row_axis.logical_stride);
  extent.element_scale = element_scale;
  CompareOperand r{nullptr, ref.dtype, n >= 2 ? ref.strides[n - 2] : 0,
                   ref.scale};
  CompareOperand c{nullptr, cand.dtype, n >= 2 ? cand.strides[n - 2] : 0,
                   cand.scale};
  const int64_t ref_size = Info(ref.dtype).itemsize;
  const int64_t cand_size = Info(cand.dtype).itemsize;
  const size_t outer = n >= 2 ? n - 2 : 0;
  std::vector<int64_t> at(outer, 0);
  for (;;) {
    int64_t ref_at = 0;
    int64_t cand_at = 0;
    int64_t logical = logical_begin;
    for (size_t d = 0; d < outer; ++d) {
      ref_at += at[d] * ref.strides[d];
      cand_at += at[d] * cand.strides[d];
      logical += at[d] * axes[d].logical_stride;
    }
    r.data = ref.data + ref_at * ref_size;
    c.data = cand.data + cand_at * cand_size;
    extent.logical_begin = static_cast<uint64_t>(logical);
    CompareRows(r, c, extent, sums);
    size_t d = outer;
    while (d > 0 && ++at[d - 1] == axes[d - 1].size) at[--d] = 0;
    if (d == 0) return;
  }
}

// As many tiles as a thread is given at a time: small beside a large tensor,
// and much more work than handing them out.
constexpr int64_t kFullTilesOfRange = 8;
constexpr size_t kTilesOfRange = 64;  // that need not be full
// Enough ranges for any number of threads, few enough to keep.
constexpr size_t kWaitingTiles = 2048;

// Compares the bytes of both with their checksums, before threads ask for parts
// of them: they would wait for the one that came first. All of them, whatever
// is found, so that what is known to be damaged is the same for any threads.
Status VerifyBoth(const Instance& ref, const Instance& cand) {
  std::vector<std::pair<const Trace*, const Record*>> records;
  for (const Instance* instance : {&ref, &cand}) {
    for (const Term& term : instance->terms) {
      records.emplace_back(instance->trace, &term.record);
    }
  }
  std::vector<Status> found(records.size(), Status(Done{}));
  const Status none = ForEachPart(records.size(), [&](size_t i) -> Status {
    found[i] = TileReader::Verify(*records[i].first, *records[i].second);
    return Done{};
  });
  for (const Status& status : found) TTRACE_RETURN_IF_ERROR(status);
  return none;
}

}  // namespace

InstanceComparer::InstanceComparer(int64_t tile_elements, double element_scale)
    : tile_elements_(std::max<int64_t>(1, tile_elements)),
      element_scale_(element_scale) {}

Status InstanceComparer::Compare(const PlacedInstance& ref,
                                 const PlacedInstance& cand, ErrorSums* sums,
                                 const Layout* within) {
  bool verified = false;
  tiles_.clear();
  Status status = ForEachTile(
      ref.layout, cand.layout, tile_elements_,
      [&](const Tile& tile) -> Status {
        tiles_.push_back(tile);
        if (tiles_.size() < kWaitingTiles) return Done{};
        return CompareTiles(ref.instance, cand.instance, &verified, sums);
      },
      within);
  if (status.ok()) {
    status = CompareTiles(ref.instance, cand.instance, &verified, sums);
  }
  return status;
}

// Which these are does not depend on the number of threads: what is read of a
// damaged tensor, and said of it, must not either.
std::vector<InstanceComparer::Range> InstanceComparer::RangesOfTiles() const {
  std::vector<Range> out;
  int64_t elements = 0;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    const int64_t count = tiles_[i].count();
    if (out.empty() || i - out.back().begin == kTilesOfRange ||
        elements + count > kFullTilesOfRange * tile_elements_) {
      out.push_back({i, i});
      elements = 0;
    }
    elements += count;
    out.back().end = i + 1;
  }
  return out;
}

Status InstanceComparer::CompareTiles(const Instance& ref, const Instance& cand,
                                      bool* verified, ErrorSums* sums) {
  const std::vector<Range> ranges = RangesOfTiles();
  if (ranges.size() > 1 && !*verified) {
    TTRACE_RETURN_IF_ERROR(VerifyBoth(ref, cand));
    *verified = true;
  }
  const bool one = ranges.size() == 1;
  const Status status = ForEachPart(ranges.size(), [&](size_t i) {
    std::unique_ptr<Sweep> sweep = Borrow();
    const Status compared = CompareRange(ref, cand, ranges[i], sweep.get(),
                                         one ? sums : &sweep->sums);
    GiveBack(std::move(sweep));
    return compared;
  });
  tiles_.clear();
  if (one) return status;
  for (const auto& sweep : idle_) {
    sums->Merge(sweep->sums);
    sweep->sums = {};
  }
  return status;
}

Status InstanceComparer::CompareRange(const Instance& ref, const Instance& cand,
                                      const Range& range, Sweep* sweep,
                                      ErrorSums* sums) const {
  const bool same = &ref == &cand;
  for (size_t i = range.begin; i < range.end; ++i) {
    const Tile& tile = tiles_[i];
    TTRACE_ASSIGN_OR_RETURN(const BlockView ref_view,
                            sweep->ref_reader.Read(ref, BlockInA(tile)));
    BlockView cand_view = ref_view;
    if (!same) {
      TTRACE_ASSIGN_OR_RETURN(cand_view,
                              sweep->cand_reader.Read(cand, BlockInB(tile)));
    }
    CompareViews(tile.axes, tile.logical_begin, ref_view, cand_view,
                 element_scale_, sums);
  }
  return Done{};
}

std::unique_ptr<InstanceComparer::Sweep> InstanceComparer::Borrow() {
  const std::lock_guard<std::mutex> lock(idle_mutex_);
  if (idle_.empty()) return std::make_unique<Sweep>();
  std::unique_ptr<Sweep> sweep = std::move(idle_.back());
  idle_.pop_back();
  return sweep;
}

void InstanceComparer::GiveBack(std::unique_ptr<Sweep> sweep) {
  const std::lock_guard<std::mutex> lock(idle_mutex_);
  idle_.push_back(std::move(sweep));
}

}  // namespace ttrace
