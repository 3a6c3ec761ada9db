// Where each element of a rank's local tensor sits in the global tensor.
//
// Every placement of mesh.h, and every box, cuts dimensions independently, so a
// layout is, for each tensor dimension, an ordered list of segments: runs of
// consecutive global indices in the order in which the local tensor stores
// them. A plain shard is one segment, a zigzag shard two, a gated weight's
// shard two. The local tensor is the cross product of its dimensions' segments.
//
// The batch is a global dimension: a micro-batch on a data-parallel rank holds
// some rows of the iteration's global batch, given as BatchRows, so that the
// micro-batch is part of the layout and not of a tensor's identity.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_LAYOUT_H_
#define TTRACE_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ttrace/mesh.h"
#include "ttrace/status.h"

namespace ttrace {

using Shape = std::vector<int64_t>;

// In elements, of a tensor without gaps.
inline std::vector<int64_t> RowMajorStrides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * shape[d];
  }
  return strides;
}

// `size` consecutive indices from `begin` in the global tensor.
struct Segment {
  int64_t begin = 0;
  int64_t size = 0;
  bool operator==(const Segment&) const = default;
};

struct DimLayout {
  std::vector<Segment> segments;  // in local order; adjacent ones are joined
  int64_t global_size = 0;
  bool operator==(const DimLayout&) const = default;

  int64_t local_size() const;
};

struct Layout {
  std::vector<DimLayout> dims;
  bool operator==(const Layout&) const = default;

  Shape local_shape() const;
  Shape global_shape() const;
  int64_t local_count() const;   // elements held
  int64_t global_count() const;  // elements of the whole
};

// Rows [begin, begin + count) of the global batch of `global` rows lie along
// tensor dimension `dim`. The dimension is not cut by any mesh dimension.
struct BatchRows {
  int dim = 0;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t global = 0;
  bool operator==(const BatchRows&) const = default;
};

// Resolves placements to segments. `global_shape` is the shape of the whole
// logical tensor, the batch dimension included.
//
// Fails with kInvalidArgument if the coordinate does not fit the mesh, a
// placement names an unknown mesh dimension or tensor dimension, ZigzagShard or
// StridedShard does not divide its dimension evenly, rows lie outside the
// global batch, or the total element count overflows int64.
Result<Layout> ResolveLayout(const DeviceMesh& mesh,
                             const Coordinate& coordinate,
                             const PlacementMap& placements,
                             const Shape& global_shape,
                             const std::optional<BatchRows>& rows);

// The inverse question that capture asks: the global shape of a tensor whose
// local shape is `local_shape`. Assumes even division (what is captured came
// from an even cut); ResolveLayout on the result must give back `local_shape`,
// which this function checks.
Result<Shape> GlobalShape(const DeviceMesh& mesh, const Coordinate& coordinate,
                          const PlacementMap& placements,
                          const Shape& local_shape,
                          const std::optional<BatchRows>& rows);

// A dimension of `global_size` of which the local tensor holds `indices`, one
// after the other: rows that were picked one by one, not cut.
//
// Fails with kInvalidArgument if an index lies outside the dimension or comes
// twice.
Result<DimLayout> ListIndices(std::span<const int64_t> indices,
                              int64_t global_size);

// A run of consecutive global indices of one dimension that two layouts share.
struct SharedRun {
  int64_t a_local = 0;  // first index in a's local dimension
  int64_t b_local = 0;  // the same element in b's
  int64_t begin = 0;    // and in the global tensor
  int64_t size = 0;
  bool operator==(const SharedRun&) const = default;
};

// All shared runs of two layouts of one dimension, sorted by `begin`.
// REQUIRES: a.global_size == b.global_size.
std::vector<SharedRun> Intersect(const DimLayout& a, const DimLayout& b);

}  // namespace ttrace

#endif  // TTRACE_LAYOUT_H_
