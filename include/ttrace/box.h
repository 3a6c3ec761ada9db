// A part of a rank's local tensor that no rule of placements gives: a box, and
// the boxes that a flat range of elements consists of.
//
// A sharded optimizer cuts a flat buffer and not a tensor, so that a rank's
// part of a parameter begins and ends anywhere in a row. Such a part is a few
// boxes, each a record of its own under RaggedShard (mesh.h). A box counts the
// local indices that the other placements leave, so that it says the same
// whatever these are.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_BOX_H_
#define TTRACE_BOX_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "ttrace/layout.h"
#include "ttrace/mesh.h"
#include "ttrace/status.h"

namespace ttrace {

// Local indices [begin, begin + size) of a dimension that has `of` of them.
struct BoxDim {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t of = 0;
  bool operator==(const BoxDim&) const = default;
};
using Box = std::vector<BoxDim>;  // one per tensor dimension

// The part of `layout` that is inside the box.
//
// Fails with kInvalidArgument if the box has another number of dimensions, an
// `of` that is not the layout's local size, or reaches out of it.
Result<Layout> CutToBox(const Layout& layout, const Box& box);

// Where a piece lies: ResolveLayout, cut to the box if there is one.
//
// Fails with kInvalidArgument as these two do, if a box comes without a
// RaggedShard or a RaggedShard without a box, and if a box cuts the dimension
// of the rows.
Result<Layout> ResolvePiece(const DeviceMesh& mesh,
                            const Coordinate& coordinate,
                            const PlacementMap& placements,
                            const Shape& global_shape,
                            const std::optional<BatchRows>& rows,
                            const std::optional<Box>& box);

// A box whose elements are consecutive in a row-major tensor, the first of
// them at the flat index `offset`.
struct FlatBox {
  int64_t offset = 0;
  Box box;
  bool operator==(const FlatBox&) const = default;
};

// The fewest such boxes that make up the elements [begin, end) of a row-major
// tensor of this shape, in their order: at most 2n - 1 for n dimensions. None
// for an empty range, one without dimensions for the element of a scalar.
//
// Fails with kInvalidArgument for a range outside the tensor, a negative size
// or an element count that overflows int64.
Result<std::vector<FlatBox>> BoxesOfRange(const Shape& shape, int64_t begin,
                                          int64_t end);

}  // namespace ttrace

#endif  // TTRACE_BOX_H_
