// From placements to segments, and back to the global shape.
//
// All numbers here may come from a file: every product is checked, and nothing
// is allocated in proportion to a number that has not been bounded.

#include "ttrace/layout.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "src/region/segment_slice.h"

namespace ttrace {
namespace {

// No tensor library supports more dimensions, and no real layout comes near
// this number of segments (a fused QKV weight has one per head group).
constexpr size_t kMaxTensorDims = 64;
constexpr size_t kMaxSegments = 4096;

constexpr std::string_view kMicroBatchDim = "mb";

// Every product of a subset of `shape` is representable, too: a zero does not
// excuse the other sizes.
bool CountOverflows(const Shape& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (size != 0 && product > std::numeric_limits<int64_t>::max() / size) {
      return true;
    }
    if (size != 0) product *= size;
  }
  return false;
}

// Chunk `index` of `extent` cut into `count` by torch.chunk's rule: every
// chunk but the last non-empty one has ceil(extent / count) elements. Cutting
// 5 into 4 thus gives 2, 2, 1, 0 and not 2, 1, 1, 1.
Segment TorchChunk(int64_t extent, int64_t count, int64_t index) {
  const int64_t full = extent / count + (extent % count != 0 ? 1 : 0);
  if (full == 0 || index > extent / full) return {extent, 0};
  const int64_t begin = full * index;
  return {begin, std::min(full, extent - begin)};
}

struct DimCut {
  int tensor_dim = -1;  // -1: this placement cuts nothing
  int sections = 1;     // StridedShard
  bool zigzag = false;
};

struct DimCutOf {
  DimCut operator()(const Replicate&) const { return {}; }
  DimCut operator()(const Partial&) const { return {}; }
  DimCut operator()(const RaggedShard&) const { return {}; }
  DimCut operator()(const Shard& p) const { return {p.dim, 1, false}; }
  DimCut operator()(const StridedShard& p) const {
    return {p.dim, p.sections, false};
  }
  DimCut operator()(const ZigzagShard& p) const { return {p.dim, 1, true}; }
};

// A placement that cuts a tensor dimension, with its mesh dimension resolved.
struct Cut {
  size_t dim = 0;
  int64_t parts = 1;
  int64_t index = 0;
  int64_t sections = 1;
  bool zigzag = false;
  std::string text;  // for messages
};

Status CheckMesh(const DeviceMesh& mesh, const Coordinate& coordinate) {
  if (coordinate.size() != mesh.dims.size()) {
    return Invalid("the mesh has " + std::to_string(mesh.dims.size()) +
                   " dimensions, the coordinate " +
                   std::to_string(coordinate.size()));
  }
  for (size_t m = 0; m < coordinate.size(); ++m) {
    const MeshDim& dim = mesh.dims[m];
    if (dim.size < 1 || coordinate[m] < 0 || coordinate[m] >= dim.size) {
      return Invalid("coordinate " + std::to_string(coordinate[m]) +
                     " is outside mesh dimension '" + dim.name + "' of size " +
                     std::to_string(dim.size));
    }
  }
  return Done{};
}

// Checks what does not depend on sizes.
Result<std::vector<Cut>> ResolveCuts(const DeviceMesh& mesh,
                                     const Coordinate& coordinate,
                                     const PlacementMap& placements,
                                     size_t tensor_dims,
                                     const std::optional<BatchRows>& rows) {
  TTRACE_RETURN_IF_ERROR(CheckMesh(mesh, coordinate));
  if (tensor_dims > kMaxTensorDims) {
    return Invalid("a tensor of " + std::to_string(tensor_dims) +
                   " dimensions");
  }
  if (rows &&
      (rows->dim < 0 || static_cast<size_t>(rows->dim) >= tensor_dims ||
       rows->begin < 0 || rows->count < 0 || rows->global < rows->count ||
       rows->begin > rows->global - rows->count)) {
    return Invalid("rows [" + std::to_string(rows->begin) + ", +" +
                   std::to_string(rows->count) + ") of " +
                   std::to_string(rows->global) + " along dimension " +
                   std::to_string(rows->dim) +
                   " do not lie in the global batch");
  }

  std::vector<Cut> cuts;
  std::set<std::string_view> seen;
  for (const auto& [name, placement] : placements) {
    std::string text = name + ":" + ToString(placement);
    if (!seen.insert(name).second) {
      return Invalid("two placements for mesh dimension '" + name + "'");
    }
    const int found = mesh.Find(name);
    if (found < 0) {
      if (name == kMicroBatchDim &&
          std::holds_alternative<Partial>(placement)) {
        continue;
      }
      return Invalid(text + ": no such mesh dimension");
    }
    const DimCut cut = std::visit(DimCutOf{}, placement);
    const bool cuts_nothing = std::holds_alternative<Replicate>(placement) ||
                              std::holds_alternative<Partial>(placement) ||
                              std::holds_alternative<RaggedShard>(placement);
    if (cuts_nothing) continue;
    if (cut.tensor_dim < 0 ||
        static_cast<size_t>(cut.tensor_dim) >= tensor_dims) {
      return Invalid(text + " on a tensor of " + std::to_string(tensor_dims) +
                     " dimensions");
    }
    if (cut.sections < 1) return Invalid(text + ": no sections");
    if (rows && rows->dim == cut.tensor_dim) {
      return Invalid(text + " cuts the batch dimension");
    }
    const auto m = static_cast<size_t>(found);
    cuts.push_back({static_cast<size_t>(cut.tensor_dim), mesh.dims[m].size,
                    coordinate[m], cut.sections, cut.zigzag, std::move(text)});
  }
  return cuts;
}

// Cuts what earlier placements left of a dimension.
Status Apply(const Cut& cut, DimLayout& layout) {
  const int64_t extent = layout.local_size();
  const int64_t pieces = cut.zigzag ? 2 * cut.parts : cut.sections;
  if (extent % pieces != 0) {
    return Invalid(cut.text + ": " + std::to_string(extent) +
                   " elements do not divide into " + std::to_string(pieces));
  }
  if (cut.parts == 1) return Done{};  // One rank holds everything, in order.

  const int64_t section = extent / pieces;
  std::vector<Segment> left;
  if (cut.zigzag) {
    const int64_t last = 2 * cut.parts - 1;
    AppendSlice(layout.segments, {cut.index * section, section}, left);
    AppendSlice(layout.segments, {(last - cut.index) * section, section}, left);
  } else {
    if (static_cast<size_t>(cut.sections) > kMaxSegments) {
      return Invalid(cut.text + ": more than " + std::to_string(kMaxSegments) +
                     " sections");
    }
    const Segment chunk = TorchChunk(section, cut.parts, cut.index);
    for (int64_t s = 0; s < cut.sections; ++s) {
      AppendSlice(layout.segments, {s * section + chunk.begin, chunk.size},
                  left);
    }
  }
  if (left.size() > kMaxSegments) {
    return Invalid(cut.text + ": more than " + std::to_string(kMaxSegments) +
                   " segments");
  }
  layout.segments = std::move(left);
  return Done{};
}

Status CheckShape(const Shape& shape) {
  for (const int64_t size : shape) {
    if (size < 0) return Invalid("a negative size: " + std::to_string(size));
  }
  if (CountOverflows(shape)) return Invalid("the element count overflows");
  return Done{};
}

}  // namespace

int64_t DimLayout::local_size() const {
  int64_t size = 0;
  for (const Segment& s : segments) size += s.size;
  return size;
}

Shape Layout::local_shape() const {
  Shape shape;
  for (const DimLayout& dim : dims) shape.push_back(dim.local_size());
  return shape;
}

Shape Layout::global_shape() const {
  Shape shape;
  for (const DimLayout& dim : dims) shape.push_back(dim.global_size);
  return shape;
}

int64_t Layout::local_count() const {
  int64_t count = 1;
  for (const DimLayout& dim : dims) count *= dim.local_size();
  return count;
}

int64_t Layout::global_count() const {
  int64_t count = 1;
  for (const DimLayout& dim : dims) count *= dim.global_size;
  return count;
}

Result<Layout> ResolveLayout(const DeviceMesh& mesh,
                             const Coordinate& coordinate,
                             const PlacementMap& placements,
                             const Shape& global_shape,
                             const std::optional<BatchRows>& rows) {
  TTRACE_ASSIGN_OR_RETURN(
      const std::vector<Cut> cuts,
      ResolveCuts(mesh, coordinate, placements, global_shape.size(), rows));
  TTRACE_RETURN_IF_ERROR(CheckShape(global_shape));

  Layout layout;
  for (size_t d = 0; d < global_shape.size(); ++d) {
    Segment held{0, global_shape[d]};
    if (rows && static_cast<size_t>(rows->dim) == d) {
      if (rows->global != global_shape[d]) {
        return Invalid("a global batch of " + std::to_string(rows->global) +
                       " rows in a dimension of " +
                       std::to_string(global_shape[d]));
      }
      held = {rows->begin, rows->count};
    }
    DimLayout dim;
    dim.global_size = global_shape[d];
    if (held.size > 0) dim.segments.push_back(held);
    layout.dims.push_back(std::move(dim));
  }
  for (const Cut& cut : cuts) {
    TTRACE_RETURN_IF_ERROR(Apply(cut, layout.dims[cut.dim]));
  }
  return layout;
}

Result<Shape> GlobalShape(const DeviceMesh& mesh, const Coordinate& coordinate,
                          const PlacementMap& placements,
                          const Shape& local_shape,
                          const std::optional<BatchRows>& rows) {
  TTRACE_ASSIGN_OR_RETURN(
      const std::vector<Cut> cuts,
      ResolveCuts(mesh, coordinate, placements, local_shape.size(), rows));
  TTRACE_RETURN_IF_ERROR(CheckShape(local_shape));

  Shape shape = local_shape;
  if (rows) shape[static_cast<size_t>(rows->dim)] = rows->global;
  for (const Cut& cut : cuts) {
    int64_t& size = shape[cut.dim];
    if (size > std::numeric_limits<int64_t>::max() / cut.parts) {
      return Invalid(cut.text + ": the global size overflows");
    }
    size *= cut.parts;
  }
  TTRACE_ASSIGN_OR_RETURN(
      const Layout layout,
      ResolveLayout(mesh, coordinate, placements, shape, rows));
  if (layout.local_shape() != local_shape) {
    return Invalid("no even cut gives the local shape under '" +
                   ToString(placements) + "'");
  }
  return shape;
}

}  // namespace ttrace
