// Every placement on every small mesh, against definitions written as plainly
// as possible: explicit lists of indices.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ttrace/layout.h"

namespace ttrace::layout_property_test {
namespace {

using Indices = std::vector<int64_t>;

Indices Part(const Indices& all, int64_t begin, int64_t end) {
  const auto size = static_cast<int64_t>(all.size());
  return Indices(all.begin() + std::min(begin, size),
                 all.begin() + std::min(end, size));
}

Indices Chunk(const Indices& all, int parts, int index) {
  const auto size = static_cast<int64_t>(all.size());
  const int64_t full = (size + parts - 1) / parts;
  return Part(all, full * index, full * (index + 1));
}

// What a placement leaves of a list, or nothing if it does not divide it.
std::optional<Indices> Left(const Indices& all, const Placement& placement,
                            int parts, int index) {
  const auto size = static_cast<int64_t>(all.size());
  if (std::holds_alternative<Shard>(placement)) return Chunk(all, parts, index);
  if (const auto* strided = std::get_if<StridedShard>(&placement)) {
    if (size % strided->sections != 0) return std::nullopt;
    const int64_t section = size / strided->sections;
    Indices left;
    for (int64_t s = 0; s < strided->sections; ++s) {
      const Indices piece =
          Chunk(Part(all, s * section, (s + 1) * section), parts, index);
      left.insert(left.end(), piece.begin(), piece.end());
    }
    return left;
  }
  if (size % (2 * parts) != 0) return std::nullopt;
  const int64_t chunk = size / (2 * parts);
  Indices left = Part(all, index * chunk, (index + 1) * chunk);
  const int64_t mirror = 2 * parts - 1 - index;
  const Indices late = Part(all, mirror * chunk, (mirror + 1) * chunk);
  left.insert(left.end(), late.begin(), late.end());
  return left;
}

int TensorDim(const Placement& placement) {
  if (const auto* p = std::get_if<Shard>(&placement)) return p->dim;
  if (const auto* p = std::get_if<StridedShard>(&placement)) return p->dim;
  if (const auto* p = std::get_if<ZigzagShard>(&placement)) return p->dim;
  return -1;
}

Indices Expand(const DimLayout& dim) {
  Indices indices;
  for (const Segment& s : dim.segments) {
    for (int64_t i = 0; i < s.size; ++i) indices.push_back(s.begin + i);
  }
  return indices;
}

struct Case {
  DeviceMesh mesh;
  PlacementMap placements;
  Shape shape;
};

std::vector<Coordinate> Coordinates(const DeviceMesh& mesh) {
  std::vector<Coordinate> all = {{}};
  for (const MeshDim& dim : mesh.dims) {
    std::vector<Coordinate> longer;
    for (const Coordinate& c : all) {
      for (int i = 0; i < dim.size; ++i) {
        longer.push_back(c);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// The local lists by definition, or nothing if the case does not divide.
std::optional<std::vector<Indices>> ByDefinition(const Case& c,
                                                 const Coordinate& at) {
  std::vector<Indices> dims;
  for (const int64_t size : c.shape) {
    Indices all;
    for (int64_t i = 0; i < size; ++i) all.push_back(i);
    dims.push_back(all);
  }
  for (const auto& [name, placement] : c.placements) {
    const int dim = TensorDim(placement);
    if (dim < 0) continue;
    const auto m = static_cast<size_t>(c.mesh.Find(name));
    auto& list = dims[static_cast<size_t>(dim)];
    const auto left = Left(list, placement, c.mesh.dims[m].size, at[m]);
    if (!left) return std::nullopt;
    list = *left;
  }
  return dims;
}

// Returns whether the case divides.
bool CheckCase(const Case& c) {
  SCOPED_TRACE(ToString(c.placements) + " of " + std::to_string(c.shape[0]) +
               " x " + std::to_string(c.shape[1]));
  int64_t copies = 1;
  for (const auto& [name, placement] : c.placements) {
    if (TensorDim(placement) >= 0) continue;
    copies *= c.mesh.dims[static_cast<size_t>(c.mesh.Find(name))].size;
  }
  const auto columns = static_cast<size_t>(c.shape[1]);
  std::vector<int64_t> holders(static_cast<size_t>(c.shape[0]) * columns, 0);
  std::set<Shape> local_shapes;
  for (const Coordinate& at : Coordinates(c.mesh)) {
    const auto expected = ByDefinition(c, at);
    const Result<Layout> layout =
        ResolveLayout(c.mesh, at, c.placements, c.shape, std::nullopt);
    EXPECT_EQ(layout.ok(), expected.has_value());
    if (!expected || !layout.ok()) return false;
    for (size_t d = 0; d < 2; ++d) {
      EXPECT_EQ(Expand(layout->dims[d]), (*expected)[d]);
      for (size_t s = 1; s < layout->dims[d].segments.size(); ++s) {
        const Segment& before = layout->dims[d].segments[s - 1];
        EXPECT_NE(before.begin + before.size, layout->dims[d].segments[s].begin)
            << "neighbours are joined";
      }
    }
    for (const int64_t row : (*expected)[0]) {
      for (const int64_t column : (*expected)[1]) {
        ++holders[static_cast<size_t>(row) * columns +
                  static_cast<size_t>(column)];
      }
    }
    local_shapes.insert(layout->local_shape());
  }
  // Merging what was sharded gives every element back, and each copy of it.
  for (const int64_t count : holders) {
    if (count != copies) {
      ADD_FAILURE() << count << " holders and not " << copies;
      break;
    }
  }
  if (local_shapes.size() == 1) {
    for (const Coordinate& at : Coordinates(c.mesh)) {
      const Result<Shape> global =
          GlobalShape(c.mesh, at, c.placements, *local_shapes.begin(), {});
      EXPECT_TRUE(global.ok());
      // Chunks of 0 leave nothing to infer a size from.
      if (global.ok()) {
        EXPECT_EQ(*global, c.shape);
      }
    }
  }
  return true;
}

TEST(LayoutProperty, ShardsTileTheTensorForEveryPlacementAndMesh) {
  const std::vector<Placement> kinds = {
      Replicate{},        Partial{},          Shard{0},       Shard{1},
      StridedShard{0, 2}, StridedShard{1, 3}, ZigzagShard{0}, ZigzagShard{1}};
  const std::vector<std::vector<int>> meshes = {
      {1}, {2}, {3}, {4}, {2, 2}, {2, 3}, {3, 2}, {4, 2}, {2, 2, 2}, {2, 1, 3}};
  const std::vector<Shape> shapes = {{48, 36}, {5, 7}, {1, 6}};
  const std::vector<std::string> names = {"dp", "cp", "tp"};
  int divided = 0;
  for (const auto& sizes : meshes) {
    size_t combinations = 1;
    for (size_t m = 0; m < sizes.size(); ++m) combinations *= kinds.size();
    for (size_t code = 0; code < combinations; ++code) {
      Case c;
      size_t rest = code;
      for (size_t m = 0; m < sizes.size(); ++m) {
        c.mesh.dims.push_back({names[m], sizes[m]});
        c.placements.emplace_back(names[m], kinds[rest % kinds.size()]);
        rest /= kinds.size();
      }
      for (const Shape& shape : shapes) {
        c.shape = shape;
        if (CheckCase(c)) ++divided;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(divided, 1500) << "most cases must have been real ones";
}

}  // namespace
}  // namespace ttrace::layout_property_test
