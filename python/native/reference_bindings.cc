// Reference: tensors of a recorded run, read at this rank's place in them.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "python/native/bindings.h"
#include "src/align/catalog.h"
#include "src/align/read_local.h"
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

class Reference {
 public:
  explicit Reference(const std::string& folder)
      : catalog_(ValueOrThrow(Trace::Open(folder))) {}

  std::vector<std::string> Legs() const { return catalog_.legs(); }

  bool Find(const std::string& leg, std::string fqn, const std::string& role,
            int iteration, int call, std::string arg,
            const std::string& pass) const {
    return catalog_.Find(leg, MakeId(std::move(fqn), role, iteration, call,
                                     std::move(arg), pass)) != nullptr;
  }

  // Empty if there is no such tensor.
  Shape GlobalShape(const std::string& leg, std::string fqn,
                    const std::string& role, int iteration, int call,
                    std::string arg, const std::string& pass) const {
    const TensorPieces* pieces = catalog_.Find(
        leg,
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
        leg,
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
    const TensorPieces* pieces = catalog_.Find(leg, id);
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
      .def("read_rows", &Reference::ReadRows, nb::arg("leg"), nb::arg("fqn"),
           nb::arg("role"), nb::arg("iteration"), nb::arg("call"),
           nb::arg("arg"), nb::arg("pass_"), nb::arg("spec"),
           nb::arg("tokens_ptr"), nb::arg("tokens_count"), nb::arg("out_ptr"));
}

}  // namespace ttrace
