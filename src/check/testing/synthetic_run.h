// A small run written by hand: what check_test.cc compares. Values are a
// function of (tensor, logical index), so that every mesh holds pieces of the
// same logical tensors; legs and faults change them.

#ifndef TTRACE_SRC_CHECK_TESTING_SYNTHETIC_RUN_H_
#define TTRACE_SRC_CHECK_TESTING_SYNTHETIC_RUN_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/align/fed_rows.h"
#include "src/numeric/noise.h"
#include "src/numeric/row_digests.h"
#include "src/trace/writer.h"
#include "ttrace/layout.h"

namespace ttrace {

// One tensor of the model, in words of its placement.
struct SyntheticTensor {
  std::string fqn;
  Role role;
  std::string arg;
  Pass pass;
  Shape global;
  PlacementMap placements;  // mesh dimensions that the mesh lacks are ignored
  int batch_dim = -1;       // cut into micro-batches
  std::vector<std::string> reduced_over;
  std::optional<DType> dtype = std::nullopt;  // nothing: the run's
};

class SyntheticRun {
 public:
  // What a rank really holds: may change the value at a logical index.
  using Fault =
      std::function<void(const SyntheticTensor&, int rank, const Leg& leg,
                         int64_t index, float* value)>;

  std::vector<MeshDim> mesh;
  std::vector<Leg> legs = {"real"};
  float noise = 0;            // relative rounding of this run's own
  DType dtype = DType::kF32;  // or kBF16 (the same values, cut off), or kI64
  std::map<std::string, DType> dtypes;  // of some fqn
  float noise_of_legs = 0x1p-24f;
  Fault fault;
  Scale scale_of_gradients;  // declared for those of parameters
  std::vector<int> omit_ranks;
  // Kind and JSON of notes that every rank leaves.
  std::vector<std::pair<std::string, std::string>> notes;
  std::function<std::string(int rank)> gradient_norms;  // JSON of such a note
  bool notes_rows = false;  // of data and of what the model is given
  bool omit_tensor(const SyntheticTensor& t) const {
    return t.fqn == omitted_fqn;
  }
  std::string omitted_fqn = "none";
  // What a rank did not write.
  std::function<bool(const SyntheticTensor&, int rank, const Leg& leg,
                     int iteration)>
      omit;
  // Ranks whose capture stopped in this iteration: no seal, an end that says
  // so.
  std::vector<int> stopped_ranks;
  int stopped_in = 0;
  std::string select;                  // as of --select
  bool reverse_ranks = false;          // write the last rank first
  std::vector<SyntheticTensor> extra;  // beside those of Model()
  std::vector<Leg> unsealed_legs;      // that rank ends did not complete
  int first_iteration = 0;
  int iterations = 1;         // all with the same values, but for faults
  int faulty_iteration = -1;  // -1: the fault is in all of them
  std::string run_id;

  static constexpr int64_t kRows = 8;
  int64_t rows_of_a_micro_batch = 2;

  static std::vector<SyntheticTensor> Model() {
    const Placement shard0 = Shard{0};
    const Placement shard1 = Shard{1};
    const Placement partial = Partial{};
    return {
        {"fc.weight",
         Role::kParam,
         "",
         Pass::kForward,
         {16, 32},
         {{"tp", shard0}},
         -1,
         {}},
        {"", Role::kInput, "tokens", Pass::kForward, {kRows, 32}, {}, 0, {}},
        {"fc", Role::kInput, "x", Pass::kForward, {kRows, 32}, {}, 0, {}},
        {"fc",
         Role::kOutput,
         "0",
         Pass::kForward,
         {kRows, 16},
         {{"tp", shard1}},
         0,
         {}},
        {"", Role::kOutput, "0", Pass::kForward, {kRows, 16}, {}, 0, {}},
        {"", Role::kGradOutput, "0", Pass::kBackward, {kRows, 16}, {}, 0, {}},
        {"fc",
         Role::kGradOutput,
         "0",
         Pass::kBackward,
         {kRows, 16},
         {{"tp", shard1}},
         0,
         {}},
        {"fc",
         Role::kGradInput,
         "x",
         Pass::kBackward,
         {kRows, 32},
         {},
         0,
         {"tp"}},
        {"fc.weight",
         Role::kGradLocal,
         "",
         Pass::kBackward,
         {16, 32},
         {{"dp", partial}, {"tp", shard0}},
         -1,
         {}},
        {"fc.weight",
         Role::kGradReduced,
         "",
         Pass::kBackward,
         {16, 32},
         {{"tp", shard0}},
         -1,
         {"dp"}},
    };
  }

  // In (-1, 1), a pure function of the logical place.
  static float Value(const SyntheticTensor& t, int64_t index) {
    const std::string name =
        t.fqn + "|" + std::string(ToString(t.role)) + "|" + t.arg;
    return UniformAt(MakeNoiseKey(1, name), static_cast<uint64_t>(index));
  }

  void Write(const std::string& folder) const {
    const std::string manifest =
        !run_id.empty()   ? "{\"run_id\":\"" + run_id + "\"}"
        : !select.empty() ? "{\"select\":\"" + select + "\"}"
                          : "{}";
    ASSERT_TRUE(CreateTraceFolder(folder, manifest, false).ok());
    int world = 1;
    for (const MeshDim& dim : mesh) world *= dim.size;
    for (int i = 0; i < world; ++i) {
      const int rank = reverse_ranks ? world - 1 - i : i;
      if (std::find(omit_ranks.begin(), omit_ranks.end(), rank) ==
          omit_ranks.end()) {
        WriteRank(folder, rank, world);
      }
    }
  }

 private:
  int SizeOf(const std::string& name) const {
    for (const MeshDim& dim : mesh) {
      if (dim.name == name) return dim.size;
    }
    return 1;
  }

  DType DTypeOf(const SyntheticTensor& t) const {
    const auto own = dtypes.find(t.fqn);
    return own != dtypes.end() ? own->second : t.dtype.value_or(dtype);
  }

  void WriteRank(const std::string& folder, int rank, int world) const {
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = world;
    meta.run_id = run_id;
    meta.mesh.dims = mesh;
    int rest = rank;
    meta.coordinate.assign(mesh.size(), 0);
    for (size_t d = mesh.size(); d-- > 0;) {
      meta.coordinate[d] = rest % mesh[d].size;
      rest /= mesh[d].size;
    }
    auto writer = TraceWriter::Open(folder, meta);
    ASSERT_TRUE(writer.ok()) << writer.error().message();
    const int dp = SizeOf("dp");
    int dp_rank = 0;
    for (size_t d = 0; d < mesh.size(); ++d) {
      if (mesh[d].name == "dp") dp_rank = meta.coordinate[d];
    }
    for (const auto& [kind, json] : notes) {
      ASSERT_TRUE((*writer)->Note(kind, json).ok());
    }
    if (gradient_norms) {
      ASSERT_TRUE((*writer)->Note("gradient_norms", gradient_norms(rank)).ok());
    }
    const bool stops = std::find(stopped_ranks.begin(), stopped_ranks.end(),
                                 rank) != stopped_ranks.end();
    for (int iteration = first_iteration;
         iteration < first_iteration + iterations; ++iteration) {
      for (const Leg& leg : legs) {
        std::vector<SyntheticTensor> tensors = Model();
        tensors.insert(tensors.end(), extra.begin(), extra.end());
        for (const SyntheticTensor& t : tensors) {
          if (omit_tensor(t)) continue;
          if (t.role == Role::kParam &&
              (leg != "real" || iteration > first_iteration)) {
            continue;
          }
          if (omit && omit(t, rank, leg, iteration)) continue;
          const int64_t batches =
              t.batch_dim < 0 ? 1 : kRows / rows_of_a_micro_batch / dp;
          for (int64_t call = 0; call < batches; ++call) {
            WritePiece(**writer, meta, t, leg, rank,
                       static_cast<int>(call * dp + dp_rank), iteration);
          }
        }
        if (stops && iteration >= stopped_in) continue;
        if (std::find(unsealed_legs.begin(), unsealed_legs.end(), leg) ==
            unsealed_legs.end()) {
          ASSERT_TRUE((*writer)->Seal(iteration, leg).ok());
        }
      }
    }
    ASSERT_TRUE((*writer)->Close(!stops, stops ? "it stopped" : "").ok());
  }

  void WritePiece(TraceWriter& writer, const RankMeta& meta,
                  const SyntheticTensor& t, const Leg& leg, int rank,
                  int micro_batch, int iteration) const {
    PlacementMap placements;
    for (const auto& p : t.placements) {
      if (meta.mesh.Find(p.first) >= 0) placements.push_back(p);
    }
    std::optional<BatchRows> rows;
    if (t.batch_dim >= 0) {
      rows = BatchRows{t.batch_dim, rows_of_a_micro_batch * micro_batch,
                       rows_of_a_micro_batch, kRows};
    }
    const auto layout =
        ResolveLayout(meta.mesh, meta.coordinate, placements, t.global, rows);
    ASSERT_TRUE(layout.ok()) << layout.error().message();
    const float terms =
        t.role == Role::kGradLocal ? static_cast<float>(SizeOf("dp")) : 1.0f;
    std::vector<float> values;
    ForEachIndex(*layout, [&](int64_t index) {
      float value = Value(t, index) / terms;
      const bool integer_like = (t.role == Role::kInput && t.fqn.empty()) ||
                                !Info(DTypeOf(t)).floating;
      const float size = leg.is_noise() ? noise_of_legs : noise;
      if (!integer_like && t.role != Role::kParam) {
        const NoiseKey key = MakeNoiseKey(2, leg.name() + t.fqn + t.arg);
        // In double: the factor itself is not to be rounded to one side.
        value = static_cast<float>(
            value * (1.0 + static_cast<double>(size) *
                               UniformAt(key, static_cast<uint64_t>(index))));
      }
      if (fault && (faulty_iteration < 0 || faulty_iteration == iteration)) {
        fault(t, rank, leg, index, &value);
      }
      values.push_back(value);
    });
    if (notes_rows && leg == "real" && t.batch_dim == 0 &&
        (t.role == Role::kData || (t.role == Role::kInput && t.fqn.empty()))) {
      NoteRows(writer, t, values, micro_batch, iteration);
    }
    RecordSpec spec;
    spec.fqn = t.fqn;
    spec.role = t.role;
    spec.arg = t.arg;
    spec.dtype = DTypeOf(t);
    if (t.role == Role::kGradLocal || t.role == Role::kGradReduced) {
      spec.scale = scale_of_gradients;
    }
    spec.local_shape = layout->local_shape();
    spec.placements = placements;
    spec.global_shape = t.global;
    spec.batch_dim = t.batch_dim;
    for (const std::string& name : t.reduced_over) {
      if (meta.mesh.Find(name) >= 0) spec.reduced_over.push_back(name);
    }
    Occurrence at;
    at.leg = leg;
    at.iteration = iteration;
    at.pass = t.pass;
    at.micro_batch = t.batch_dim >= 0 ? micro_batch : -1;
    at.row_begin = t.batch_dim >= 0 ? rows_of_a_micro_batch * micro_batch : 0;
    std::vector<int64_t> strides(spec.local_shape.size(), 1);
    for (size_t d = strides.size(); d-- > 1;) {
      strides[d - 1] = strides[d] * spec.local_shape[d];
    }
    std::vector<uint16_t> cut;
    std::vector<int64_t> whole;
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    if (spec.dtype == DType::kBF16) {
      for (const float value : values) {
        cut.push_back(
            static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
      }
      bytes = reinterpret_cast<const std::byte*>(cut.data());
    } else if (spec.dtype == DType::kI64) {
      for (const float value : values) {
        whole.push_back(static_cast<int64_t>(value * 1000));
      }
      bytes = reinterpret_cast<const std::byte*>(whole.data());
    }
    const Status done = writer.Append(spec, at, {bytes, strides});
    ASSERT_TRUE(done.ok()) << done.error().message();
  }

  void NoteRows(TraceWriter& writer, const SyntheticTensor& t,
                const std::vector<float>& values, int micro_batch,
                int iteration) const {
    const auto rows = static_cast<size_t>(rows_of_a_micro_batch);
    const std::string where = fmt::format(
        R"("fed":"{}","iteration":{},"micro_batch":{},"call":0,"rows":{})",
        t.role == Role::kData ? "data" : "", iteration, micro_batch, rows);
    const RowDigests digests =
        DigestRows(std::as_bytes(std::span(values)), rows, sizeof(float));
    for (const auto& [kind, json] :
         {std::pair("fed_call", fmt::format("{{{}}}", where)),
          std::pair(
              "fed_rows",
              fmt::format(
                  R"({{{},"arg":"{}","dim":0,"width":{},"whole":"{}"}})", where,
                  t.arg, values.size() / rows, DigestText(digests.whole)))}) {
      const Status done = writer.Note(kind, json);
      ASSERT_TRUE(done.ok()) << done.error().message();
    }
  }

  // Row-major over the local tensor, of one or two dimensions.
  static void ForEachIndex(const Layout& layout,
                           const std::function<void(int64_t)>& visit) {
    for (const Segment& row : layout.dims[0].segments) {
      for (int64_t r = row.begin; r < row.begin + row.size; ++r) {
        if (layout.dims.size() == 1) {
          visit(r);
          continue;
        }
        for (const Segment& col : layout.dims[1].segments) {
          for (int64_t c = col.begin; c < col.begin + col.size; ++c) {
            visit(r * layout.dims[1].global_size + c);
          }
        }
      }
    }
  }
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_TESTING_SYNTHETIC_RUN_H_
