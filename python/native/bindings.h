// Shared by the files of ttrace._native: how Errors become exceptions, and the
// Spec that the writer makes and the noise and the reference reader use.

#ifndef TTRACE_PYTHON_NATIVE_BINDINGS_H_
#define TTRACE_PYTHON_NATIVE_BINDINGS_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/record_table.h"
#include "src/trace/writer.h"
#include "ttrace/status.h"

namespace ttrace {

// Thrown on the way to Python only. The translator turns it into ttrace.Error,
// or into the subclass that is an OSError, FileNotFoundError as well.
struct PythonError {
  Error error;
};

template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) throw PythonError{result.error()};
  return *std::move(result);
}

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) throw PythonError{status.error()};
}

// A RecordSpec and the place of the rank that holds it.
struct Spec {
  std::shared_ptr<const RankMeta> meta;
  RecordSpec record;

  // The rows from `row_begin` on, if the tensor has a batch dimension.
  std::optional<BatchRows> RowsAt(int64_t row_begin) const;
  Result<Layout> LayoutAt(int64_t row_begin) const;
  // Of routed rows: where they lie if these are their tokens. Fails with
  // kInvalidArgument if there is not one for each row, one lies outside the
  // tensor or comes twice, or the rows are not routed.
  Result<Layout> LayoutOf(std::span<const int64_t> tokens) const;
};

void BindCapture(nanobind::module_& module);
void BindReference(nanobind::module_& module);

}  // namespace ttrace

#endif  // TTRACE_PYTHON_NATIVE_BINDINGS_H_
