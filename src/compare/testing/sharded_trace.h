// For tests: one logical tensor, cut up by a mesh and written as a trace.

#ifndef TTRACE_SRC_COMPARE_TESTING_SHARDED_TRACE_H_
#define TTRACE_SRC_COMPARE_TESTING_SHARDED_TRACE_H_

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/align/catalog.h"
#include "src/trace/index/record_check.h"
#include "src/trace/testing/scratch_trace.h"
#include "src/trace/writer.h"

namespace ttrace {

// How one side holds a tensor.
struct Sharding {
  DeviceMesh mesh;
  std::vector<DeviceMesh> views;  // other grids, ranks in row-major order
  PlacementMap placements;
  DType dtype = DType::kF32;  // kF32, kF64 or kI64
  Scale scale;
  int batch_dim = -1;
  // Rows of each micro-batch, in order, by coordinate along `batch_mesh_dim`.
  // Without a batch dimension: how many micro-batches each of them has.
  std::vector<std::vector<int64_t>> micro_batches;
  std::string batch_mesh_dim = "dp";
  std::vector<std::string> reduced_over;
  // With a RaggedShard over `ragged_dim`: the flat range of the local tensor by
  // coordinate along it. Each box of it is a piece.
  std::vector<Segment> ranges;
  std::string ragged_dim = "dp";
  int64_t row_overlap = 0;  // a fault: rows shared with the micro-batch before
};

// One piece about to be written, for tests that damage it.
struct Piece {
  int rank = 0;
  int micro_batch = -1;
  Coordinate coordinate;
  std::optional<Box> box;
  Layout layout;
  std::vector<double> values;
};
// Returns false for a piece that is not to be written.
using Damage = std::function<bool(Piece*)>;

// Indices of one dimension that a layout holds, in local order.
inline std::vector<int64_t> HeldIndices(const DimLayout& dim) {
  std::vector<int64_t> held;
  for (const Segment& segment : dim.segments) {
    for (int64_t i = 0; i < segment.size; ++i)
      held.push_back(segment.begin + i);
  }
  return held;
}

// Row-major global index of every local element.
inline std::vector<size_t> LogicalIndices(const Layout& layout) {
  std::vector<int64_t> indices = {0};
  for (const DimLayout& dim : layout.dims) {
    std::vector<int64_t> next;
    for (const int64_t outer : indices) {
      for (const int64_t inner : HeldIndices(dim)) {
        next.push_back(outer * dim.global_size + inner);
      }
    }
    indices = std::move(next);
  }
  return {indices.begin(), indices.end()};
}

// The terms of a Partial are v + 1, v + 2, ..., and the last one makes up for
// them, so that sums of integers come out exactly.
inline double TermOf(double value, int64_t term, int64_t terms) {
  if (terms == 1) return value;
  if (term + 1 < terms) return value + static_cast<double>(term) + 1;
  const auto n = static_cast<double>(terms - 1);
  return value - n * value - n * (n + 1) / 2;
}

template <typename T>
std::vector<std::byte> Packed(const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

class ShardedTrace {
 public:
  ShardedTrace(const Shape& global, const std::vector<double>& values,
               const Sharding& sharding, const Damage& damage = nullptr)
      : global_(global), values_(values), sharding_(sharding) {
    int world = 1;
    for (const MeshDim& dim : sharding.mesh.dims) world *= dim.size;
    OrDie(CreateTraceFolder(folder_.path(), "{}", true));
    for (int rank = 0; rank < world; ++rank) WriteRank(rank, world, damage);
    catalog_ = std::make_unique<Catalog>(OrDie(Trace::Open(folder_.path())));
  }

  const std::string& folder() const { return folder_.path(); }

  // The one tensor, whose pieces a test may reorder.
  TensorPieces pieces() const {
    return catalog_->tensors("real").begin()->second;
  }

 private:
  static Coordinate CoordinateOf(int rank, const DeviceMesh& mesh) {
    Coordinate coordinate(mesh.dims.size());
    for (size_t d = coordinate.size(); d-- > 0;) {
      coordinate[d] = rank % mesh.dims[d].size;
      rank /= mesh.dims[d].size;
    }
    return coordinate;
  }

  // In the grid that the placements speak of.
  MeshView PlaceOf(const RankMeta& meta) const {
    const int grid =
        OrDie(FindGrid(meta, sharding_.placements, sharding_.reduced_over));
    return {meta.MeshOf(grid), meta.CoordinateIn(grid)};
  }

  // Which term of the sum this piece is, and of how many.
  std::pair<int64_t, int64_t> Term(const MeshView& place, int micro_batch,
                                   int micro_batches) const {
    int64_t term = 0;
    int64_t terms = 1;
    for (const auto& [name, placement] : sharding_.placements) {
      if (!std::holds_alternative<Partial>(placement)) continue;
      if (name == "mb") {
        term = term * micro_batches + micro_batch;
        terms *= micro_batches;
        continue;
      }
      const auto d = static_cast<size_t>(place.mesh.Find(name));
      term = term * place.mesh.dims[d].size + place.coordinate[d];
      terms *= place.mesh.dims[d].size;
    }
    return {term, terms};
  }

  void WriteRank(int rank, int world, const Damage& damage) {
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = world;
    meta.mesh = sharding_.mesh;
    meta.coordinate = CoordinateOf(rank, meta.mesh);
    for (const DeviceMesh& view : sharding_.views) {
      meta.views.push_back({view, CoordinateOf(rank, view)});
    }
    const auto writer = OrDie(TraceWriter::Open(folder_.path(), meta));
    const int batch_dim_index = sharding_.mesh.Find(sharding_.batch_mesh_dim);
    const size_t group =
        batch_dim_index < 0
            ? 0
            : static_cast<size_t>(
                  meta.coordinate[static_cast<size_t>(batch_dim_index)]);
    if (sharding_.micro_batches.empty()) {
      WritePieces(*writer, meta, -1, 1, 0, 0, damage);
    }
    int micro_batch = 0;
    int64_t row = 0;
    for (size_t g = 0; g < sharding_.micro_batches.size(); ++g) {
      const auto& sizes = sharding_.micro_batches[g];
      for (const int64_t rows : sizes) {
        if (micro_batch > 0) row -= sharding_.row_overlap;
        if (g == group) {
          // Without rows every rank sees the same micro-batches.
          WritePieces(*writer, meta, micro_batch,
                      static_cast<int>(sizes.size()), row, rows, damage);
        }
        ++micro_batch;
        row += rows;
      }
    }
    OrDie(writer->Seal(0, "real"));
    OrDie(writer->Close(true, ""));
  }

  // Of one micro-batch: one piece, or the boxes of a flat range.
  void WritePieces(TraceWriter& writer, const RankMeta& meta, int micro_batch,
                   int micro_batches, int64_t row, int64_t rows,
                   const Damage& damage) {
    std::optional<BatchRows> batch;
    if (sharding_.batch_dim >= 0) {
      batch = BatchRows{sharding_.batch_dim, row, rows,
                        global_[static_cast<size_t>(sharding_.batch_dim)]};
    }
    Piece piece;
    piece.rank = meta.rank;
    piece.micro_batch = micro_batch;
    piece.coordinate = meta.coordinate;
    const MeshView place = PlaceOf(meta);
    piece.layout = OrDie(ResolveLayout(place.mesh, place.coordinate,
                                       sharding_.placements, global_, batch));
    if (!IsRagged(sharding_.placements)) {
      WritePiece(writer, meta, piece, micro_batches, row, damage);
      return;
    }
    const auto along =
        static_cast<size_t>(place.mesh.Find(sharding_.ragged_dim));
    const Segment& range =
        sharding_.ranges[static_cast<size_t>(place.coordinate[along])];
    const Layout held = piece.layout;
    for (const FlatBox& flat : OrDie(BoxesOfRange(
             held.local_shape(), range.begin, range.begin + range.size))) {
      piece.box = flat.box;
      piece.layout = OrDie(CutToBox(held, flat.box));
      WritePiece(writer, meta, piece, micro_batches, row, damage);
    }
  }

  void WritePiece(TraceWriter& writer, const RankMeta& meta, Piece piece,
                  int micro_batches, int64_t row, const Damage& damage) {
    const int micro_batch = piece.micro_batch;
    const auto [term, terms] = Term(
        PlaceOf(meta), std::max(micro_batch, 0) % micro_batches, micro_batches);
    const double factor = static_cast<double>(sharding_.scale.denominator) /
                          static_cast<double>(sharding_.scale.numerator);
    for (const size_t index : LogicalIndices(piece.layout)) {
      piece.values.push_back(TermOf(values_[index], term, terms) * factor);
    }
    if (damage && !damage(&piece)) return;
    RecordSpec spec;
    spec.fqn = "layer";
    spec.arg = "0";
    spec.dtype = sharding_.dtype;
    spec.local_shape = piece.layout.local_shape();
    spec.placements = sharding_.placements;
    spec.global_shape = global_;
    spec.batch_dim = sharding_.batch_dim;
    spec.box = piece.box;
    spec.scale = sharding_.scale;
    spec.reduced_over = sharding_.reduced_over;
    Occurrence occurrence = RealOccurrence();
    occurrence.micro_batch = micro_batch;
    occurrence.row_begin = row;
    const std::vector<std::byte> bytes =
        spec.dtype == DType::kF32   ? Packed<float>(piece.values)
        : spec.dtype == DType::kF64 ? Packed<double>(piece.values)
                                    : Packed<int64_t>(piece.values);
    const std::vector<int64_t> strides = RowMajorStrides(spec.local_shape);
    OrDie(writer.Append(spec, occurrence, {bytes.data(), strides}));
  }

  ScratchFolder folder_;
  Shape global_;
  std::vector<double> values_;
  Sharding sharding_;
  std::unique_ptr<Catalog> catalog_;
};

// What most tests hold: sequence, batch, hidden.
inline const Shape kShape = {12, 8, 16};
inline constexpr int64_t kCount = 12 * 8 * 16;

// One rank that holds everything.
inline Sharding Whole() {
  Sharding s;
  s.mesh.dims = {{"dp", 1}};
  return s;
}
inline const Sharding kWhole = Whole();

// Normal.
inline std::vector<double> RandomReals(unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(kCount);
  for (double& value : values) value = normal(rng);
  return values;
}

inline std::vector<double> RandomIntegers(unsigned seed,
                                          size_t count = kCount) {
  std::mt19937 rng(seed);
  std::vector<double> values(count);
  for (double& value : values) {
    value = static_cast<double>(rng() % 2001) - 1000;
  }
  return values;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_TESTING_SHARDED_TRACE_H_
