#include "src/trace/rank_meta.h"

#include <algorithm>
#include <set>
#include <utility>

#include "src/trace/format.h"
#include "src/trace/json.h"

namespace ttrace {
namespace {

Error Invalid(std::string message) {
  return Error(ErrorCode::kInvalidArgument, std::move(message));
}

// What the text form of placements can carry. "mb" is taken by micro-batches.
bool IsMeshDimName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 64 && name != "mb" &&
         std::all_of(name.begin(), name.end(), allowed);
}

}  // namespace

Status CheckRankMeta(const RankMeta& meta) {
  if (meta.world_size < 1 || meta.world_size > kMaxWorldSize) {
    return Invalid("a world of " + std::to_string(meta.world_size) + " ranks");
  }
  if (meta.rank < 0 || meta.rank >= meta.world_size) {
    return Invalid("rank " + std::to_string(meta.rank) + " of a world of " +
                   std::to_string(meta.world_size));
  }
  if (meta.mesh.dims.size() > static_cast<size_t>(kMaxMeshDims)) {
    return Invalid("a mesh of " + std::to_string(meta.mesh.dims.size()) +
                   " dimensions");
  }
  if (meta.coordinate.size() != meta.mesh.dims.size()) {
    return Invalid("the coordinate does not have the mesh's dimensions");
  }
  std::set<std::string_view> names;
  int64_t ranks = 1;
  for (size_t i = 0; i < meta.coordinate.size(); ++i) {
    const MeshDim& dim = meta.mesh.dims[i];
    if (!IsMeshDimName(dim.name) || !names.insert(dim.name).second) {
      return Invalid("'" + Abridged(dim.name) +
                     "' cannot name a mesh dimension, or does so twice");
    }
    if (dim.size < 1 || dim.size > kMaxWorldSize) {
      return Invalid("mesh dimension '" + dim.name + "' has size " +
                     std::to_string(dim.size));
    }
    if (meta.coordinate[i] < 0 || meta.coordinate[i] >= dim.size) {
      return Invalid("coordinate " + std::to_string(meta.coordinate[i]) +
                     " is outside mesh dimension '" + dim.name + "' of size " +
                     std::to_string(dim.size));
    }
    ranks *= dim.size;
    if (ranks > meta.world_size) break;
  }
  if (ranks != meta.world_size) {
    return Invalid("the mesh's sizes do not multiply to the world's " +
                   std::to_string(meta.world_size));
  }
  return Done{};
}

Result<std::string> EncodeRankMeta(const RankMeta& meta) {
  if (!IsUtf8(meta.run_id)) return Invalid("the run id is not UTF-8");
  const Result<std::string> adapter = CompactJsonObject(meta.adapter_json);
  if (!adapter.ok()) return adapter.error().WithContext("adapter_json");

  std::string mesh;
  std::string coordinate;
  for (size_t i = 0; i < meta.mesh.dims.size(); ++i) {
    const MeshDim& dim = meta.mesh.dims[i];
    const std::string_view comma = i > 0 ? "," : "";
    mesh.append(comma).append("[").append(QuoteJson(dim.name)).append(",");
    mesh.append(std::to_string(dim.size)).append("]");
    coordinate.append(comma).append(std::to_string(meta.coordinate[i]));
  }
  std::string json = "{\"format\":" + QuoteJson(kFormatName);
  json.append(",\"version\":").append(std::to_string(kFormatVersion));
  json.append(",\"rank\":").append(std::to_string(meta.rank));
  json.append(",\"world_size\":").append(std::to_string(meta.world_size));
  json.append(",\"mesh\":[").append(mesh).append("]");
  json.append(",\"coordinate\":[").append(coordinate).append("]");
  json.append(",\"run_id\":").append(QuoteJson(meta.run_id));
  if (meta.chained) json.append(",\"chained\":true");
  json.append(",\"adapter\":").append(*adapter).append("}\n");
  if (json.size() > kMaxJsonFileBytes) return Invalid("adapter_json: too long");
  return json;
}

Result<RankMeta> DecodeRankMeta(std::string_view json) {
  JsonParser parser;
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::object object,
                          parser.Parse(json));
  const JsonFields fields(object);
  TTRACE_RETURN_IF_ERROR(CheckFormatVersion(fields));

  RankMeta meta;
  TTRACE_ASSIGN_OR_RETURN(meta.rank, fields.SmallInt("rank", 0));
  TTRACE_ASSIGN_OR_RETURN(meta.world_size, fields.SmallInt("world_size", 1));
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::array mesh,
                          fields.Array("mesh"));
  for (const simdjson::dom::element element : mesh) {
    simdjson::dom::array pair;
    std::string_view name;
    int64_t size = 0;
    if (element.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get(name) != simdjson::SUCCESS ||
        pair.at(1).get(size) != simdjson::SUCCESS || size < 1 ||
        size > kMaxWorldSize) {
      return BadField("mesh", "has an element that is not [name, size]");
    }
    meta.mesh.dims.push_back({std::string(name), static_cast<int>(size)});
  }
  TTRACE_ASSIGN_OR_RETURN(const Shape coordinate,
                          fields.Ints("coordinate", 0, kMaxMeshDims));
  for (const int64_t c : coordinate) {
    if (c >= kMaxWorldSize) return BadField("coordinate", "is out of range");
    meta.coordinate.push_back(static_cast<int>(c));
  }
  TTRACE_ASSIGN_OR_RETURN(meta.run_id, fields.Text("run_id"));
  meta.chained = false;
  if (fields.Has("chained")) {
    TTRACE_ASSIGN_OR_RETURN(meta.chained, fields.Bool("chained"));
  }
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::object adapter,
                          fields.Object("adapter"));
  meta.adapter_json = simdjson::minify(adapter);

  const Status status = CheckRankMeta(meta);
  if (!status.ok()) {
    return Error(ErrorCode::kCorrupt, status.error().message());
  }
  return meta;
}

}  // namespace ttrace
