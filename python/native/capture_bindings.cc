// Writer, Spec and perturb: what a rank needs while it is being captured.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/native/bindings.h"
#include "src/in_place/candidate_reducer.h"
#include "src/in_place/element_scales.h"
#include "src/in_place/leg_reducer.h"
#include "src/in_place/summarizer.h"
#include "src/numeric/noise.h"
#include "src/numeric/sketch.h"
#include "src/trace/index/record_check.h"
#include "src/trace/writing/holding_writer.h"
#include "src/trace/writing/record_times.h"
#include "src/trace/writing/writer_thread.h"

namespace nb = nanobind;

namespace ttrace {

std::optional<BatchRows> Spec::RowsAt(int64_t row_begin) const {
  if (record.batch_dim < 0) return std::nullopt;
  const auto dim = static_cast<size_t>(record.batch_dim);
  return BatchRows{record.batch_dim, row_begin, record.local_shape[dim],
                   record.global_shape[dim]};
}

Result<Layout> Spec::LayoutAt(int64_t row_begin) const {
  if (record.routed) {
    return Error(ErrorCode::kInvalidArgument,
                 record.fqn + ": routed rows lie at their tokens");
  }
  TTRACE_ASSIGN_OR_RETURN(
      const int grid, FindGrid(*meta, record.placements, record.reduced_over));
  return ResolvePiece(meta->MeshOf(grid), meta->CoordinateIn(grid),
                      record.placements, record.global_shape, RowsAt(row_begin),
                      record.box);
}

Result<Layout> Spec::LayoutOf(std::span<const int64_t> tokens) const {
  const auto count = static_cast<int64_t>(tokens.size());
  if (!record.routed || record.local_shape.front() != count) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: {} tokens for what is not as many routed rows",
                    record.fqn, count));
  }
  Shape held = record.global_shape;
  held.front() = count;
  TTRACE_ASSIGN_OR_RETURN(
      const int grid, FindGrid(*meta, record.placements, record.reduced_over));
  TTRACE_ASSIGN_OR_RETURN(
      Layout layout,
      ResolveLayout(meta->MeshOf(grid), meta->CoordinateIn(grid),
                    record.placements, held, BatchRows{0, 0, count, count}));
  TTRACE_ASSIGN_OR_RETURN(layout.dims.front(),
                          ListIndices(tokens, record.global_shape.front()));
  return layout;
}

namespace {

// Rows that a router chose, as Python says it: the router's fqn, which of its
// outputs is the map, the expert, the name of the note that lists the source
// ranks, and the number of all tokens.
using Routed = std::tuple<std::string, std::string, int, std::string, int64_t>;

Error Invalid(const std::string& message) {
  return Error(ErrorCode::kInvalidArgument, message);
}

Role RoleOf(const std::string& name) {
  const auto role = ParseRole(name);
  if (!role) throw PythonError{Invalid("unknown role '" + name + "'")};
  return *role;
}

DType DTypeOf(const std::string& name) {
  const auto dtype = ParseDType(name);
  if (!dtype) {
    throw PythonError{
        Error(ErrorCode::kUnsupported, "no support for dtype " + name)};
  }
  return *dtype;
}

using PyMesh = std::vector<std::pair<std::string, int>>;
using PyGrid = std::pair<PyMesh, Coordinate>;

DeviceMesh MeshOf(const PyMesh& dims) {
  DeviceMesh mesh;
  for (const auto& [name, size] : dims) mesh.dims.push_back({name, size});
  return mesh;
}

// Where a tensor's memory is that is not the process's: the kind and number of
// the device, and the handle of the stream.
using PyDevice = std::tuple<std::string, int, uintptr_t>;

Device DeviceOf(const std::string& kind, int index) {
  if (kind != "cuda") {
    throw PythonError{
        Error(ErrorCode::kUnsupported, "no support for devices of " + kind)};
  }
  return {DeviceKind::kCuda, index};
}

// [begin, size, of] of each dimension.
using PyBox = std::vector<std::tuple<int64_t, int64_t, int64_t>>;

Box BoxOf(const PyBox& dims) {
  Box box;
  for (const auto& [begin, size, of] : dims) box.push_back({begin, size, of});
  return box;
}

const std::byte* AsBytes(uintptr_t address) {
  return reinterpret_cast<const std::byte*>(address);
}

void PerturbTensor(const Spec& spec, int64_t row_begin, uint64_t seed,
                   const std::string& name, uintptr_t from,
                   const std::vector<int64_t>& from_strides, uintptr_t to,
                   const std::vector<int64_t>& to_strides,
                   const DoParts& parts) {
  const Layout layout = ValueOrThrow(spec.LayoutAt(row_begin));
  const nb::gil_scoped_release release;
  ThrowIfError(ttrace::Perturb(
      MakeNoiseKey(seed, name), layout, spec.record.dtype, AsBytes(from),
      from_strides, reinterpret_cast<std::byte*>(to), to_strides, parts));
}

// The Python class: a TraceWriter and the meta data that specs refer to.
class Writer {
 public:
  Writer(const std::string& folder, int rank, int world_size,
         const PyMesh& mesh, Coordinate coordinate, std::string adapter_json,
         std::string run_id, const std::vector<PyGrid>& views,
         const std::optional<std::vector<std::string>>& measured_legs,
         const std::optional<std::string>& reference, const std::string& mode,
         bool on_thread) {
    auto meta = std::make_shared<RankMeta>();
    meta->rank = rank;
    meta->world_size = world_size;
    meta->mesh = MeshOf(mesh);
    meta->coordinate = std::move(coordinate);
    for (const auto& [dims, place] : views) {
      meta->views.push_back({MeshOf(dims), place});
    }
    meta->adapter_json = std::move(adapter_json);
    meta->run_id = std::move(run_id);
    std::vector<Leg> legs;
    for (const std::string& name :
         measured_legs.value_or(std::vector<std::string>())) {
      legs.emplace_back(name);
    }
    if (measured_legs) scales_ = std::make_shared<ElementScales>();
    auto writer = ValueOrThrow(TraceWriter::Open(
        folder, *meta,
        mode == "sketch"    ? MakeSummarizer(kSketchBuckets)
        : mode == "bitwise" ? MakeSummarizer(0)
        : !measured_legs    ? nullptr
        : reference ? MakeCandidateReducer(*meta, legs, *reference, scales_)
                    : MakeLegReducer(*meta, legs, scales_)));
    writer_ = HoldRecords(std::move(writer), folder);
    if (on_thread) {
      auto sink = WriteOnThread(std::move(writer_));
      sink_ = sink.get();
      writer_ = std::move(sink);
    }
    meta_ = std::move(meta);
  }

  Spec MakeSpec(std::string fqn, const std::string& role, std::string arg,
                const std::string& dtype, Shape local_shape,
                const std::string& placements, int batch_dim,
                int64_t batch_global, std::pair<int64_t, int64_t> scale,
                std::vector<std::string> reduced_over,
                const std::optional<PyBox>& box,
                const std::optional<Routed>& routed,
                const std::optional<Shape>& whole) const {
    Spec spec;
    spec.meta = meta_;
    RecordSpec& record = spec.record;
    record.fqn = std::move(fqn);
    record.role = RoleOf(role);
    record.arg = std::move(arg);
    record.dtype = DTypeOf(dtype);
    record.local_shape = std::move(local_shape);
    record.placements = ValueOrThrow(ParsePlacements(placements));
    record.batch_dim = batch_dim;
    record.scale = {scale.first, scale.second};
    record.reduced_over = std::move(reduced_over);
    // What the placements give, of which the piece may be a box.
    Shape held = record.local_shape;
    if (box) {
      record.box = BoxOf(*box);
      held.clear();
      for (const BoxDim& dim : *record.box) held.push_back(dim.of);
    }
    std::optional<BatchRows> rows;
    if (routed) {
      if (batch_dim >= 0 || record.local_shape.empty()) {
        throw PythonError{Invalid(record.fqn + ": routed rows have no batch "
                                               "dimension and are the first")};
      }
      const auto& [by, map, expert, group, tokens] = *routed;
      record.routed = RoutedRows{by, map, expert, group};
      // How many there are says nothing of the whole.
      rows = BatchRows{0, 0, record.local_shape.front(),
                       record.local_shape.front()};
    } else if (batch_dim >= 0) {
      if (static_cast<size_t>(batch_dim) >=
          std::min(held.size(), record.local_shape.size())) {
        throw PythonError{Invalid(record.fqn + ": no dimension " +
                                  std::to_string(batch_dim))};
      }
      rows = BatchRows{batch_dim, 0, held[static_cast<size_t>(batch_dim)],
                       batch_global};
    }
    const auto grid = FindGrid(*meta_, record.placements, record.reduced_over);
    if (!grid.ok()) throw PythonError{grid.error().WithContext(record.fqn)};
    if (whole) {
      record.global_shape = *whole;
      if (rows && static_cast<size_t>(batch_dim) < whole->size()) {
        record.global_shape[static_cast<size_t>(batch_dim)] = batch_global;
      }
    } else {
      auto shape = GlobalShape(meta_->MeshOf(*grid), meta_->CoordinateIn(*grid),
                               record.placements, held, rows);
      if (!shape.ok()) throw PythonError{shape.error().WithContext(record.fqn)};
      record.global_shape = *std::move(shape);
    }
    if (routed) {
      record.global_shape.front() = std::get<4>(*routed);
      return spec;
    }
    const auto layout = spec.LayoutAt(0);
    if (!layout.ok()) throw PythonError{layout.error().WithContext(record.fqn)};
    if (layout->local_shape() != record.local_shape) {
      throw PythonError{
          Invalid(record.fqn + (box ? ": the box is not as large as the tensor"
                                    : ": its placements give another shape"))};
    }
    return spec;
  }

  void OpenDevice(const std::string& kind, int index,
                  const std::string& driver) {
    const Device device = DeviceOf(kind, index);
    if (sink_ == nullptr) {
      throw PythonError{Error(ErrorCode::kUnsupported,
                              "records are written by the thread that trains")};
    }
    const nb::gil_scoped_release release;
    ThrowIfError(sink_->OpenDevice(device, driver));
  }

  // False: the stream is captured into a graph, and nothing is recorded.
  bool Append(const Spec& spec, std::string leg, int iteration, int call,
              const std::string& pass, int micro_batch, int64_t row_begin,
              uintptr_t data, const std::vector<int64_t>& strides,
              const std::optional<PyDevice>& device, int batch) {
    Occurrence occurrence = OccurrenceOf(std::move(leg), iteration, call, pass,
                                         micro_batch, row_begin);
    occurrence.batch = batch;
    if (!device) {
      const nb::gil_scoped_release release;
      ThrowIfError(
          writer_->Append(spec.record, occurrence, {AsBytes(data), strides}));
      return true;
    }
    const auto& [kind, index, stream] = *device;
    const DeviceStream at = {DeviceOf(kind, index), stream};
    if (sink_ == nullptr) throw PythonError{Invalid("no device was opened")};
    const nb::gil_scoped_release release;
    return ValueOrThrow(sink_->AppendFrom(at, spec.record, occurrence,
                                          {AsBytes(data), strides}));
  }

  // As PerturbTensor, with the help of the thread that writes.
  void Perturb(const Spec& spec, int64_t row_begin, uint64_t seed,
               const std::string& name, uintptr_t from,
               const std::vector<int64_t>& from_strides, uintptr_t to,
               const std::vector<int64_t>& to_strides) {
    PerturbTensor(
        spec, row_begin, seed, name, from, from_strides, to, to_strides,
        sink_ == nullptr ? DoParts(DoInTurn)
                         : [this](size_t count, const auto& part) {
                             sink_->Do(count, part);
                           });
  }

  void Hold() { ThrowIfError(writer_->Hold()); }
  void Amend(const Spec& spec, std::string leg, int iteration, int call,
             const std::string& pass, int micro_batch, int64_t row_begin) {
    const nb::gil_scoped_release release;
    ThrowIfError(writer_->Amend(
        spec.record, OccurrenceOf(std::move(leg), iteration, call, pass,
                                  micro_batch, row_begin)));
  }
  void Release(const std::vector<int64_t>& micro_batches) {
    const nb::gil_scoped_release release;
    ThrowIfError(writer_->Release(micro_batches));
  }
  void Drop() { ThrowIfError(writer_->Drop()); }

  void Note(const std::string& kind, const std::string& json) {
    const nb::gil_scoped_release release;
    ThrowIfError(writer_->Note(kind, json));
  }
  void Flush() {
    const nb::gil_scoped_release release;
    ThrowIfError(writer_->Flush());
  }
  void Seal(int iteration, const std::string& leg) {
    const nb::gil_scoped_release release;
    ThrowIfError(writer_->Seal(iteration, Leg(leg)));
  }
  // Empty of a writer that measures no legs: not even a message.
  nb::bytes ScalesMessage() const {
    const std::string text = scales_ ? scales_->Message() : std::string();
    return nb::bytes(text.data(), text.size());
  }
  void LearnScales(const nb::bytes& answer) {
    if (scales_) ThrowIfError(scales_->Learn({answer.c_str(), answer.size()}));
  }
  void Close(bool complete, const std::string& reason) {
    const nb::gil_scoped_release release;
    ThrowIfError(writer_->Close(complete, reason));
  }

 private:
  static Occurrence OccurrenceOf(std::string leg, int iteration, int call,
                                 const std::string& pass, int micro_batch,
                                 int64_t row_begin) {
    const auto parsed = ParsePass(pass);
    if (!parsed) throw PythonError{Invalid("unknown pass '" + pass + "'")};
    Occurrence occurrence;
    occurrence.leg = Leg(std::move(leg));
    occurrence.iteration = iteration;
    occurrence.call = call;
    occurrence.pass = *parsed;
    occurrence.micro_batch = micro_batch;
    occurrence.row_begin = row_begin;
    occurrence.time_us = RecordTimes::Now();
    return occurrence;
  }

  std::shared_ptr<const RankMeta> meta_;
  std::shared_ptr<ElementScales> scales_;
  std::unique_ptr<TraceWriter> writer_;
  Sink* sink_ = nullptr;  // `writer_`, if it is one
};

std::vector<std::pair<int64_t, PyBox>> PyBoxesOfRange(const Shape& shape,
                                                      int64_t begin,
                                                      int64_t end) {
  std::vector<std::pair<int64_t, PyBox>> boxes;
  for (const FlatBox& flat : ValueOrThrow(BoxesOfRange(shape, begin, end))) {
    PyBox& box = boxes.emplace_back(flat.offset, PyBox()).second;
    for (const BoxDim& dim : flat.box) {
      box.emplace_back(dim.begin, dim.size, dim.of);
    }
  }
  return boxes;
}

nb::bytes AddUp(const std::vector<nb::bytes>& messages) {
  std::vector<std::string> texts;
  texts.reserve(messages.size());
  for (const nb::bytes& message : messages) {
    texts.emplace_back(message.c_str(), message.size());
  }
  const std::string answer = [&] {
    const nb::gil_scoped_release release;
    return ValueOrThrow(AddUpScales(texts));
  }();
  return nb::bytes(answer.data(), answer.size());
}

std::string Digest(uintptr_t data, size_t bytes) {
  const nb::gil_scoped_release release;
  return fmt::format("{:016x}", XXH3_64bits(AsBytes(data), bytes));
}

}  // namespace

void BindCapture(nb::module_& module) {
  nb::class_<Spec>(module, "Spec",
                   "What is the same for every occurrence of a tensor.")
      .def_prop_ro("global_shape",
                   [](const Spec& s) { return s.record.global_shape; });
  nb::class_<Writer>(module, "Writer", "One rank's append-only trace.")
      .def(nb::init<const std::string&, int, int, const PyMesh&, Coordinate,
                    std::string, std::string, const std::vector<PyGrid>&,
                    const std::optional<std::vector<std::string>>&,
                    const std::optional<std::string>&, const std::string&,
                    bool>(),
           nb::arg("folder"), nb::arg("rank"), nb::arg("world_size"),
           nb::arg("mesh"), nb::arg("coordinate"),
           nb::arg("adapter_json") = "{}", nb::arg("run_id") = "",
           nb::arg("views") = std::vector<PyGrid>(),
           nb::arg("measured_legs") = nb::none(),
           nb::arg("reference") = nb::none(), nb::arg("mode") = "full",
           nb::arg("on_thread") = true)
      .def("spec", &Writer::MakeSpec, nb::arg("fqn"), nb::arg("role"),
           nb::arg("arg"), nb::arg("dtype"), nb::arg("local_shape"),
           nb::arg("placements") = "", nb::arg("batch_dim") = -1,
           nb::arg("batch_global") = 0,
           nb::arg("scale") = std::pair<int64_t, int64_t>(1, 1),
           nb::arg("reduced_over") = std::vector<std::string>(),
           nb::arg("box") = nb::none(), nb::arg("routed") = nb::none(),
           nb::arg("whole") = nb::none())
      .def("append", &Writer::Append, nb::arg("spec"), nb::arg("leg"),
           nb::arg("iteration"), nb::arg("call"), nb::arg("pass_"),
           nb::arg("micro_batch"), nb::arg("row_begin"), nb::arg("data_ptr"),
           nb::arg("strides"), nb::arg("device") = nb::none(),
           nb::arg("batch") = 0)
      .def("open_device", &Writer::OpenDevice, nb::arg("kind"),
           nb::arg("index"), nb::arg("driver"))
      .def("perturb", &Writer::Perturb, nb::arg("spec"), nb::arg("row_begin"),
           nb::arg("seed"), nb::arg("name"), nb::arg("from_ptr"),
           nb::arg("from_strides"), nb::arg("to_ptr"), nb::arg("to_strides"),
           "Writes a tensor with one unit of round-off of noise.")
      .def("hold", &Writer::Hold,
           "Sets aside what is appended from now on, until release or drop.")
      .def("amend", &Writer::Amend, nb::arg("spec"), nb::arg("leg"),
           nb::arg("iteration"), nb::arg("call"), nb::arg("pass_"),
           nb::arg("micro_batch"), nb::arg("row_begin"),
           "What is set aside of this occurrence is of another spec.")
      .def("release", &Writer::Release, nb::arg("micro_batches"),
           "Writes what was set aside. `micro_batches`: in each batch.")
      .def("drop", &Writer::Drop, "Forgets what was set aside.")
      .def("note", &Writer::Note, nb::arg("kind"), nb::arg("json"))
      .def("flush", &Writer::Flush)
      .def("seal", &Writer::Seal, nb::arg("iteration"), nb::arg("leg"))
      .def("scales_message", &Writer::ScalesMessage,
           "What other ranks have to know of this one's tensors, so that noise "
           "legs can be measured where they run.")
      .def("learn_scales", &Writer::LearnScales, nb::arg("answer"),
           "Takes what add_up_scales made of all ranks' messages.")
      .def("close", &Writer::Close, nb::arg("complete"), nb::arg("reason"));
  module.def("boxes_of_range", &PyBoxesOfRange, nb::arg("shape"),
             nb::arg("begin"), nb::arg("end"),
             "The fewest boxes that make up the elements [begin, end) of a "
             "row-major tensor: [(offset, [(begin, size, of), ...]), ...].");
  module.def("add_up_scales", &AddUp, nb::arg("messages"),
             "Of Writer.scales_message of all ranks, in their order.");
  module.def("digest", &Digest, nb::arg("data_ptr"), nb::arg("bytes"),
             "XXH3 of bytes in a row, in hexadecimal.");
}

}  // namespace ttrace
