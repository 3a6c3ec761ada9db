// Reference: tensors of a recorded run, read at this rank's place in them.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/native/bindings.h"
#include "src/align/catalog.h"
#include "src/align/fed_rows.h"
#include "src/align/read_local.h"
#include "src/experiment/row_alignment.h"
#include "src/numeric/row_digests.h"
#include "src/trace/reader.h"
#include "src/trace/record_list.h"
#include "src/trace/record_table.h"

namespace nb = nanobind;

namespace ttrace {
namespace {

TensorId MakeId(std::string fqn, const std::string& role, int iteration,
                int call, std::string arg, const std::string& pass) {
  const auto parsed_role = ParseRole(role);
  const auto parsed_pass = ParsePass(pass);
  if (!parsed_role || !parsed_pass) {
    throw PythonError{
        Error(ErrorCode::kInvalidArgument,
              "unknown role '" + role + "' or pass '" + pass + "'")};
  }
  return {std::move(fqn), *parsed_role,   iteration,
          call,           std::move(arg), *parsed_pass};
}

// Argument, dimension, number of rows, width, relative, and the digests of
// DigestRows as hexadecimal text.
using PyFedTensor = std::tuple<std::string, int, int64_t, int64_t, bool,
                               std::tuple<std::string, std::string, std::string,
                                          std::string, std::string>>;

FedPart PartOf(const std::vector<PyFedTensor>& tensors) {
  FedPart part;
  for (const auto& [arg, dim, rows, width, relative, digests] : tensors) {
    FedTensor& tensor = part.tensors[{arg, dim}];
    tensor.rows = rows;
    tensor.width = width;
    tensor.is_relative = relative;
    const auto& [whole, without_end, without_begin, cut_end, cut_begin] =
        digests;
    tensor.digests = {ParseDigests(whole), ParseDigests(without_end),
                      ParseDigests(without_begin), ParseDigests(cut_end),
                      ParseDigests(cut_begin)};
  }
  return part;
}

// The layout of a local tensor of which row r is row `rows[r]` of the whole.
Result<Layout> PlaceRowsAt(const RecordSpec& spec, const Shape& global,
                           const std::vector<int64_t>& rows,
                           bool padded_at_begin) {
  Layout layout;
  if (global.size() != spec.local_shape.size()) {
    return Error(ErrorCode::kIncomparable,
                 "it has another number of dimensions in the reference");
  }
  for (size_t d = 0; d < global.size(); ++d) {
    const int64_t size = spec.local_shape[d];
    const bool is_batch = static_cast<int>(d) == spec.batch_dim;
    if (is_batch && !rows.empty()) {
      const auto count = static_cast<int64_t>(rows.size());
      const int64_t each = count == 0 ? 0 : size / count;
      if (each * count != size) {
        return Error(ErrorCode::kIncomparable, "its rows are not those fed");
      }
      std::vector<int64_t> indices;
      for (const int64_t row : rows) {
        for (int64_t i = 0; i < each; ++i) indices.push_back(row * each + i);
      }
      TTRACE_ASSIGN_OR_RETURN(auto dim, ListIndices(indices, global[d]));
      layout.dims.push_back(std::move(dim));
      continue;
    }
    if (size > global[d]) {
      return Error(ErrorCode::kIncomparable,
                   "the reference has no values for all of it");
    }
    const int64_t begin = padded_at_begin ? global[d] - size : 0;
    layout.dims.push_back({{{begin, size}}, global[d]});
  }
  return layout;
}

class Reference {
 public:
  explicit Reference(const std::string& folder)
      : catalog_(ValueOrThrow(Trace::Open(folder))) {}

  std::vector<std::string> Legs() const { return NamesOf(catalog_.legs()); }

  bool Find(const std::string& leg, std::string fqn, const std::string& role,
            int iteration, int call, std::string arg,
            const std::string& pass) const {
    return catalog_.Find(Leg(leg), MakeId(std::move(fqn), role, iteration, call,
                                          std::move(arg), pass)) != nullptr;
  }

  // Empty if there is no such tensor.
  Shape GlobalShape(const std::string& leg, std::string fqn,
                    const std::string& role, int iteration, int call,
                    std::string arg, const std::string& pass) const {
    const TensorPieces* pieces = catalog_.Find(
        Leg(leg),
        MakeId(std::move(fqn), role, iteration, call, std::move(arg), pass));
    return pieces == nullptr ? Shape()
                             : pieces->pieces.front().layout().global_shape();
  }

  // Whether all pieces of one region hold the same bytes, by their checksums:
  // those of all micro-batches of what does not depend on any.
  bool CopiesAgree(const std::string& leg, std::string fqn,
                   const std::string& role, int iteration, int call,
                   std::string arg, const std::string& pass) const {
    const TensorPieces* tensor = catalog_.Find(
        Leg(leg),
        MakeId(std::move(fqn), role, iteration, call, std::move(arg), pass));
    if (tensor == nullptr) return false;
    RecordList regions;
    for (const Record& piece : tensor->pieces) {
      const auto same = std::find_if(
          regions.begin(), regions.end(),
          [&](const Record& r) { return r.layout() == piece.layout(); });
      if (same == regions.end()) {
        regions.push_back(piece);
      } else if ((*same).extent().xxh3 != piece.extent().xxh3) {
        return false;
      }
    }
    return true;
  }

  void Read(const std::string& leg, std::string fqn, const std::string& role,
            int iteration, int call, std::string arg, const std::string& pass,
            const Spec& spec, int64_t row_begin, uintptr_t out) const {
    const TensorId id =
        MakeId(std::move(fqn), role, iteration, call, std::move(arg), pass);
    const nb::gil_scoped_release release;
    ReadAt(leg, id, spec, ValueOrThrow(spec.LayoutAt(row_begin)), out);
  }

  // As Read, but row r of the batch dimension is the reference's row `rows[r]`,
  // and a dimension that is padded further in the reference is read up to what
  // is held here (from its end on, if padding comes first).
  void ReadPlaced(const std::string& leg, std::string fqn,
                  const std::string& role, int iteration, int call,
                  std::string arg, const std::string& pass, const Spec& spec,
                  const std::vector<int64_t>& rows, bool padded_at_begin,
                  uintptr_t out) const {
    const TensorId id =
        MakeId(std::move(fqn), role, iteration, call, std::move(arg), pass);
    const nb::gil_scoped_release release;
    const TensorPieces* pieces = catalog_.Find(Leg(leg), id);
    if (pieces == nullptr) {
      throw PythonError{
          Error(ErrorCode::kNotFound, "the reference has no " + ToString(id))};
    }
    const Layout layout = ValueOrThrow(PlaceRowsAt(
        spec.record, pieces->global_shape(), rows, padded_at_begin));
    ReadAt(leg, id, spec, layout, out);
  }

  // Where the reference has the rows that a forward of this rank is fed: for
  // each way to count them (number here, number in the reference, place of
  // each, whether this is by what stands first in some tensor), and the rows
  // that it does not have.
  using Space = std::tuple<int64_t, int64_t, std::vector<int64_t>, bool>;
  std::tuple<std::vector<Space>, std::vector<int64_t>, bool> Place(
      bool is_data, int iteration, int call,
      const std::vector<PyFedTensor>& tensors) const {
    const FedCall of{is_data, iteration, call};
    const FedRows& fed = catalog_.fed_rows();
    const FedRows::Parts* parts = fed.Find(of);
    std::tuple<std::vector<Space>, std::vector<int64_t>, bool> out;
    if (parts == nullptr) return out;
    const FedPart own = PartOf(tensors);
    const RowsOfCall placed =
        PlaceRows(is_data ? *parts : WithItems(fed, of, *parts), own, is_data);
    for (const RowSpace& space : placed.spaces) {
      const bool first =
          std::any_of(space.by.begin(), space.by.end(),
                      [](const FedName& name) { return name.second <= 0; });
      std::get<0>(out).emplace_back(space.candidate.begin()->second,
                                    space.total, space.map->to_reference,
                                    first);
    }
    std::get<1>(out) = placed.foreign;
    std::get<2>(out) =
        std::any_of(placed.lengths.begin(), placed.lengths.end(),
                    [](const PaddedLength& length) { return length.at_begin; });
    return out;
  }

  // Whether what its forwards were fed was noted.
  bool HasFed() const { return !catalog_.fed_rows().empty(); }

  // The rows of a routed tensor that belong to these tokens, in their order.
  void ReadRows(const std::string& leg, std::string fqn,
                const std::string& role, int iteration, int call,
                std::string arg, const std::string& pass, const Spec& spec,
                uintptr_t tokens, size_t count, uintptr_t out) const {
    const TensorId id =
        MakeId(std::move(fqn), role, iteration, call, std::move(arg), pass);
    const nb::gil_scoped_release release;
    const Layout layout = ValueOrThrow(
        spec.LayoutOf({reinterpret_cast<const int64_t*>(tokens), count}));
    ReadAt(leg, id, spec, layout, out);
  }

 private:
  void ReadAt(const std::string& leg, const TensorId& id, const Spec& spec,
              const Layout& layout, uintptr_t out) const {
    const TensorPieces* pieces = catalog_.Find(Leg(leg), id);
    if (pieces == nullptr) {
      throw PythonError{
          Error(ErrorCode::kNotFound, "the reference has no " + ToString(id))};
    }
    const auto bytes = static_cast<size_t>(layout.local_count()) *
                       static_cast<size_t>(Info(spec.record.dtype).itemsize);
    ThrowIfError(
        ReadLocal(*pieces, layout, spec.record.dtype, spec.record.scale,
                  std::span(reinterpret_cast<std::byte*>(out), bytes)));
  }

  Catalog catalog_;
};

}  // namespace

void BindReference(nb::module_& module) {
  module.def(
      "digest_rows",
      [](uintptr_t data, size_t bytes, size_t rows, size_t itemsize) {
        const nb::gil_scoped_release release;
        const RowDigests digests = DigestRows(
            {reinterpret_cast<const std::byte*>(data), bytes}, rows, itemsize);
        return std::tuple(
            DigestText(digests.whole), DigestText(digests.without_end),
            DigestText(digests.without_begin), DigestText(digests.cut_end),
            DigestText(digests.cut_begin));
      },
      nb::arg("data_ptr"), nb::arg("bytes"), nb::arg("rows"),
      nb::arg("itemsize"),
      "Digests of the rows of contiguous memory, and of what is left of each "
      "without its last and its first run of equal elements, and without the "
      "element next to that, as hexadecimal text.");
  nb::class_<Reference>(module, "Reference", "A recorded run, to graft from.")
      .def(nb::init<const std::string&>(), nb::arg("folder"))
      .def_prop_ro("legs", &Reference::Legs)
      .def("find", &Reference::Find, nb::arg("leg"), nb::arg("fqn"),
           nb::arg("role"), nb::arg("iteration"), nb::arg("call"),
           nb::arg("arg"), nb::arg("pass_"))
      .def("global_shape", &Reference::GlobalShape, nb::arg("leg"),
           nb::arg("fqn"), nb::arg("role"), nb::arg("iteration"),
           nb::arg("call"), nb::arg("arg"), nb::arg("pass_"))
      .def("copies_agree", &Reference::CopiesAgree, nb::arg("leg"),
           nb::arg("fqn"), nb::arg("role"), nb::arg("iteration"),
           nb::arg("call"), nb::arg("arg"), nb::arg("pass_"))
      .def("read", &Reference::Read, nb::arg("leg"), nb::arg("fqn"),
           nb::arg("role"), nb::arg("iteration"), nb::arg("call"),
           nb::arg("arg"), nb::arg("pass_"), nb::arg("spec"),
           nb::arg("row_begin"), nb::arg("out_ptr"))
      .def_prop_ro("has_fed", &Reference::HasFed)
      .def("place", &Reference::Place, nb::arg("is_data"), nb::arg("iteration"),
           nb::arg("call"), nb::arg("tensors"))
      .def("read_placed", &Reference::ReadPlaced, nb::arg("leg"),
           nb::arg("fqn"), nb::arg("role"), nb::arg("iteration"),
           nb::arg("call"), nb::arg("arg"), nb::arg("pass_"), nb::arg("spec"),
           nb::arg("rows"), nb::arg("padded_at_begin"), nb::arg("out_ptr"))
      .def("read_rows", &Reference::ReadRows, nb::arg("leg"), nb::arg("fqn"),
           nb::arg("role"), nb::arg("iteration"), nb::arg("call"),
           nb::arg("arg"), nb::arg("pass_"), nb::arg("spec"),
           nb::arg("tokens_ptr"), nb::arg("tokens_count"), nb::arg("out_ptr"));
}

}  // namespace ttrace
