#include "src/measure/leg_reducer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/cell_comparer.h"
#include "src/compare/cell_sums.h"
#include "src/compare/compare_cells.h"
#include "src/compare/compare_kernel.h"
#include "src/experiment/leg_names.h"
#include "src/measure/term_of_sum.h"
#include "src/trace/strided_gather.h"

namespace ttrace {
namespace {

// Elements that are read back at a time.
constexpr int64_t kReadTile = kCellTile;

class LegReducer final : public Reducer {
 public:
  LegReducer(RankMeta meta, const std::vector<std::string>& legs)
      : meta_(std::move(meta)) {
    for (const std::string& leg : legs) {
      for (const std::string& base : PerturbedLegs(leg)) bases_.insert(base);
    }
  }

  std::vector<std::string> BasesOf(const std::string& leg) const override {
    return PerturbedLegs(leg);
  }

  bool IsBase(const RecordFields& record) const override {
    return bases_.contains(record.leg) && MayBeMeasured(record);
  }

  Result<std::optional<Reduced>> Reduce(const RecordFields& record,
                                        const StridedView& values,
                                        const RecordFields& base,
                                        WrittenRecords& written) override {
    if (!MayBeMeasured(record)) return std::optional<Reduced>();
    TTRACE_ASSIGN_OR_RETURN(const std::optional<double> scale,
                            ElementScale(base, written));
    if (!scale) return std::optional<Reduced>();
    TTRACE_ASSIGN_OR_RETURN(
        const CellTable table,
        CompareByCells(record, values, base, *scale, written));
    Reduced out;
    out.equal =
        std::all_of(table.cells.begin(), table.cells.end(),
                    [](const CellSums& cell) { return cell.mismatched == 0; });
    if (!out.equal) out.bytes = EncodeCells(table);
    return std::optional<Reduced>(std::move(out));
  }

  Result<std::optional<Summarized>> Summarize(const RecordFields&,
                                              const StridedView&) override {
    return std::optional<Summarized>();
  }

 private:
  static bool MayBeMeasured(const RecordFields& record) {
    return !record.routed && record.scale.value() == 1 &&
           CellComparer::Takes(record.dtype, record.layout);
  }

  Result<CellTable> CompareByCells(const RecordFields& record,
                                   const StridedView& values,
                                   const RecordFields& base, double scale,
                                   WrittenRecords& written) {
    const int64_t itemsize = Info(record.dtype).itemsize;
    CellComparer comparer(record.dtype, record.layout, scale);
    StridedGather gather(values.data, record.local_shape, values.strides,
                         static_cast<int>(itemsize));
    int64_t at = 0;
    for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
      const auto bytes = static_cast<int64_t>(tile.size());
      for (int64_t done = 0; done < bytes;) {
        const int64_t n = std::min(bytes - done, kReadTile * itemsize);
        buffer_.resize(static_cast<size_t>(n));
        TTRACE_RETURN_IF_ERROR(written.Read(base, at + done, buffer_));
        comparer.Add(buffer_.data(), tile.data() + done, n / itemsize);
        done += n;
      }
      at += bytes;
    }
    return comparer.Take();
  }

  // c of ErrorStats::max_elem for all pieces of the tensor that `base` is of;
  // nothing if this rank does not hold all of it.
  Result<std::optional<double>> ElementScale(const RecordFields& base,
                                             WrittenRecords& written) {
    const auto key = std::pair(base.leg, base.id);
    if (base.id.iteration != iteration_) {
      scales_.clear();
      iteration_ = base.id.iteration;
    }
    const auto found = scales_.find(key);
    if (found != scales_.end()) return found->second;
    TTRACE_ASSIGN_OR_RETURN(
        const std::optional<double> scale,
        MeasureScale(written.Find(base.leg, base.id), written));
    scales_.emplace(key, scale);
    return scale;
  }

  Result<std::optional<double>> MeasureScale(
      const std::vector<RecordFields>& pieces, WrittenRecords& written) {
    int64_t held = 0;
    for (const RecordFields& piece : pieces) {
      if (IsTermOfSum(meta_.MeshOf(piece.grid), piece.placements,
                      pieces.size() == 1)) {
        return std::optional<double>();
      }
      held += piece.layout.local_count();
    }
    if (held != pieces.front().layout.global_count()) {
      return std::optional<double>();
    }
    ErrorSums sums;
    for (const RecordFields& piece : pieces) {
      TTRACE_RETURN_IF_ERROR(AddSquares(piece, written, &sums));
    }
    const ErrorStats stats = sums.Stats();
    return std::optional<double>(ElementScaleOf(
        stats.nonfinite_ref > 0 ? NAN : stats.sum_sq_ref, stats.count));
  }

  Status AddSquares(const RecordFields& piece, WrittenRecords& written,
                    ErrorSums* sums) {
    const int64_t itemsize = Info(piece.dtype).itemsize;
    const int64_t total = piece.layout.local_count();
    for (int64_t at = 0; at < total; at += kReadTile) {
      const int64_t n = std::min(kReadTile, total - at);
      buffer_.resize(static_cast<size_t>(n * itemsize));
      TTRACE_RETURN_IF_ERROR(written.Read(piece, at * itemsize, buffer_));
      const CompareOperand own{buffer_.data(), piece.dtype, 0, 1};
      CompareRows(own, own, {1, n, static_cast<uint64_t>(at), 0, 0}, sums);
    }
    return Done{};
  }

  RankMeta meta_;
  std::set<std::string> bases_;  // legs that others are measured against
  std::vector<std::byte> buffer_;
  int iteration_ = -1;
  std::map<std::pair<std::string, TensorId>, std::optional<double>> scales_;
};

}  // namespace

std::unique_ptr<Reducer> MakeLegReducer(const RankMeta& meta,
                                        const std::vector<std::string>& legs) {
  return std::make_unique<LegReducer>(meta, legs);
}

}  // namespace ttrace
