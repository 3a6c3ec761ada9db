#include "src/in_place/leg_reducer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/cells/cell_comparer.h"
#include "src/compare/cells/cell_sums.h"
#include "src/compare/cells/compare_cells.h"
#include "src/compare/compare_kernel.h"
#include "src/compare/compare_tensor.h"
#include "src/measure/exact_values.h"
#include "src/measure/term_of_sum.h"
#include "src/trace/piece_in_memory.h"
#include "src/trace/strided_gather.h"

namespace ttrace {
namespace {

// Elements that are read back at a time.
constexpr int64_t kReadTile = kCellTile;

class LegReducer final : public Reducer {
 public:
  LegReducer(const RankMeta& meta, const std::vector<Leg>& legs,
             std::shared_ptr<ElementScales> scales)
      : meta_(meta),
        scales_(scales != nullptr ? std::move(scales)
                                  : std::make_shared<ElementScales>()),
        memory_(meta) {
    for (const Leg& leg : legs) {
      std::vector<Leg> better;
      for (const Leg& base : leg.Perturbed()) {
        bases_[base] = better;
        better.push_back(base);
      }
    }
  }

  std::vector<Leg> BasesOf(const Leg& leg) const override {
    return leg.Perturbed();
  }

  bool IsBase(const RecordFields& record) const override {
    return bases_.contains(record.leg) && MayBeMeasured(record);
  }

  void Wrote(const RecordFields& record, const StridedView& values,
             const WrittenRecords& written) override {
    if (!IsBase(record) || IsWhole(record) || HasNoTolerance(record.id.role)) {
      return;
    }
    for (const Leg& better : bases_.at(record.leg)) {
      if (written.CounterpartOf(record, better) != nullptr) return;
    }
    memory_.Hold(record, values);
    TensorPieces piece;
    piece.trace = &memory_;
    piece.pieces.push_back(memory_.records().front());
    const auto squares = ExactSquares(piece);
    if (!squares.ok()) return;  // a term of a sum, of which others have more
    scales_->Add(
        record, *squares,
        IsTermOfSum(meta_.MeshOf(record.grid), record.placements, false));
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

  static bool IsWhole(const RecordFields& piece) {
    return piece.layout.local_count() == piece.layout.global_count();
  }

  // c of ErrorStats::max_elem for all pieces of the tensor that `base` is of;
  // nothing if it is not known here.
  Result<std::optional<double>> ElementScale(const RecordFields& base,
                                             WrittenRecords& written) {
    const auto key = std::pair(base.leg, base.id);
    if (base.id.iteration != iteration_) {
      measured_.clear();
      iteration_ = base.id.iteration;
    }
    const auto found = measured_.find(key);
    if (found != measured_.end()) return found->second;
    TTRACE_ASSIGN_OR_RETURN(
        const std::optional<double> scale,
        FindScale(written.Find(base.leg, base.id), written));
    measured_.emplace(key, scale);
    return scale;
  }

  Result<std::optional<double>> FindScale(
      const std::vector<RecordFields>& pieces, WrittenRecords& written) {
    const RecordFields& first = pieces.front();
    if (std::none_of(pieces.begin(), pieces.end(), IsWhole)) {
      return scales_->Find(first.leg, first.id);
    }
    if (pieces.size() > 1 ||
        IsTermOfSum(meta_.MeshOf(first.grid), first.placements, true)) {
      return std::optional<double>();
    }
    ErrorSums sums;
    TTRACE_RETURN_IF_ERROR(AddSquares(first, written, &sums));
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

  const RankMeta meta_;
  // Legs that others are measured against, and what those would rather be.
  std::map<Leg, std::vector<Leg>> bases_;
  const std::shared_ptr<ElementScales> scales_;
  PieceInMemory memory_;
  std::vector<std::byte> buffer_;
  int iteration_ = -1;
  std::map<std::pair<Leg, TensorId>, std::optional<double>> measured_;
};

}  // namespace

std::unique_ptr<Reducer> MakeLegReducer(const RankMeta& meta,
                                        const std::vector<Leg>& legs,
                                        std::shared_ptr<ElementScales> scales) {
  return std::make_unique<LegReducer>(meta, legs, std::move(scales));
}

}  // namespace ttrace
