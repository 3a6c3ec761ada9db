// The grid of ranks, and what each of its dimensions does to a tensor.
//
// Names and meaning follow torch.distributed.tensor: a DeviceMesh is an
// n-dimensional grid of ranks with named dimensions, and a tensor has one
// Placement per mesh dimension. Mesh dimensions that a PlacementMap does not
// name Replicate.
//
// Text form, used in traces and reports, one word per mesh dimension:
//   "dp:Partial(sum) cp:ZigzagShard(0) tp:StridedShard(0,2)"
//
// Thread safety: plain values.

#ifndef TTRACE_MESH_H_
#define TTRACE_MESH_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ttrace/status.h"

namespace ttrace {

enum class ReduceOp : uint8_t { kSum, kAvg };

// Contiguous pieces by torch.chunk's rule.
struct Shard {
  int dim;
  bool operator==(const Shard&) const = default;
};
// `sections` equal parts laid one after the other, each of them sharded: rank r
// holds piece r of every section. Torch calls the case that arises when a later
// mesh dimension already cut the tensor _StridedShard; fused gate/up weights
// and QKV are the other common case ("interleaved").
struct StridedShard {
  int dim;
  int sections;
  bool operator==(const StridedShard&) const = default;
};
// Load-balanced context parallelism: of 2n equal chunks, rank r holds chunk r
// and chunk 2n-1-r, in this order.
struct ZigzagShard {
  int dim;
  bool operator==(const ZigzagShard&) const = default;
};
// Ranks hold disjoint parts, even or not, of what the other placements give
// them, and some may hold none: an optimizer that is sharded by a flat range of
// a parameter's elements. It has no tensor dimension. Which part a piece is,
// its Box says (box.h).
struct RaggedShard {
  bool operator==(const RaggedShard&) const = default;
};
struct Replicate {  // every rank holds the same values
  bool operator==(const Replicate&) const = default;
};
struct Partial {  // ranks hold terms; the tensor is their reduction
  ReduceOp op = ReduceOp::kSum;
  bool operator==(const Partial&) const = default;
};
using Placement = std::variant<Replicate, Shard, StridedShard, ZigzagShard,
                               Partial, RaggedShard>;

struct MeshDim {
  std::string name;  // "pp", "dp", "cp", "tp", ...
  int size = 1;
  bool operator==(const MeshDim&) const = default;
};

// Order matters: a later dimension cuts what an earlier one left over.
struct DeviceMesh {
  std::vector<MeshDim> dims;
  bool operator==(const DeviceMesh&) const = default;

  // Index of the dimension called `name`, or -1.
  int Find(std::string_view name) const;
};

// One rank's place, parallel to DeviceMesh::dims.
using Coordinate = std::vector<int>;

// (mesh dimension name, placement), in the order of application. A "mb"
// pseudo-dimension may appear with Partial only: the terms are the micro-
// batches (losses, token counts).
using PlacementMap = std::vector<std::pair<std::string, Placement>>;

// Whether terms of a sum along `dim` are what lies there.
bool IsPartialOver(const PlacementMap& placements, std::string_view dim);

// Whether some dimension is a RaggedShard: pieces have boxes.
bool IsRagged(const PlacementMap& placements);

std::string ToString(const Placement& placement);
std::string ToString(const PlacementMap& placements);

// Parses the text form above. Fails with kInvalidArgument for an unknown word.
Result<PlacementMap> ParsePlacements(std::string_view text);

}  // namespace ttrace

#endif  // TTRACE_MESH_H_
