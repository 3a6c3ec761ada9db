// Reading a logical tensor back at some rank's place in it.
//
// Grafting needs what a rank would hold had it been given the reference's
// values: any layout of the merged tensor, whatever mesh recorded it.
//
// Thread safety: pure function of const inputs.

#ifndef TTRACE_SRC_ALIGN_READ_LOCAL_H_
#define TTRACE_SRC_ALIGN_READ_LOCAL_H_

#include <cstddef>
#include <span>

#include "src/align/catalog.h"
#include "ttrace/dtype.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

// Fills `out`, row-major and contiguous, with the elements of the merged
// logical tensor that `want` selects: the first replica of each region, Partial
// terms summed in double, in units of `scale`: the logical value is what is
// written times `scale`. Bit-exact, NaN payloads included, when the dtypes and
// the scales agree and nothing is summed; otherwise each element is rounded
// once, to nearest even, to `dtype`.
//
// Reads one piece into memory at a time.
//
// Fails with kIncomparable if the pieces have no place, the global shapes
// differ, a Partial tensor lacks terms or no rank holds some of the wanted
// elements; kInvalidArgument if `out` has another size than `want`;
// kUnsupported for Partial(avg); with the Error of Trace::Read otherwise.
Status ReadLocal(const TensorPieces& pieces, const Layout& want, DType dtype,
                 Scale scale, std::span<std::byte> out);

}  // namespace ttrace

#endif  // TTRACE_SRC_ALIGN_READ_LOCAL_H_
