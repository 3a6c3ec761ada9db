#include "src/trace/rank_meta.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "src/trace/format.h"
#include "src/trace/index/json.h"

namespace ttrace {
namespace {

// What the text form of placements can carry. "mb" is taken by micro-batches.
bool IsMeshDimName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 64 && name != "mb" &&
         std::all_of(name.begin(), name.end(), allowed);
}

Status CheckGrid(const DeviceMesh& mesh, const Coordinate& coordinate,
                 int world_size) {
  if (mesh.dims.size() > static_cast<size_t>(kMaxMeshDims)) {
    return Invalid("a mesh of " + std::to_string(mesh.dims.size()) +
                   " dimensions");
  }
  if (coordinate.size() != mesh.dims.size()) {
    return Invalid("the coordinate does not have the mesh's dimensions");
  }
  std::set<std::string_view> names;
  int64_t ranks = 1;
  for (size_t i = 0; i < coordinate.size(); ++i) {
    const MeshDim& dim = mesh.dims[i];
    if (!IsMeshDimName(dim.name) || !names.insert(dim.name).second) {
      return Invalid("'" + Abridged(dim.name) +
                     "' cannot name a mesh dimension, or does so twice");
    }
    if (dim.size < 1 || dim.size > kMaxWorldSize) {
      return Invalid("mesh dimension '" + dim.name + "' has size " +
                     std::to_string(dim.size));
    }
    if (coordinate[i] < 0 || coordinate[i] >= dim.size) {
      return Invalid("coordinate " + std::to_string(coordinate[i]) +
                     " is outside mesh dimension '" + dim.name + "' of size " +
                     std::to_string(dim.size));
    }
    ranks *= dim.size;
    if (ranks > world_size) break;
  }
  if (ranks != world_size) {
    return Invalid("the mesh's sizes do not multiply to the world's " +
                   std::to_string(world_size));
  }
  return Done{};
}

std::string EncodeGrid(const DeviceMesh& mesh, const Coordinate& coordinate) {
  std::string sizes;
  for (const MeshDim& dim : mesh.dims) {
    sizes.append(sizes.empty() ? "[" : ",[").append(QuoteJson(dim.name));
    sizes.append(",").append(std::to_string(dim.size)).append("]");
  }
  std::string place;
  for (const int c : coordinate) {
    place.append(place.empty() ? "" : ",").append(std::to_string(c));
  }
  return "\"mesh\":[" + sizes + "],\"coordinate\":[" + place + "]";
}

Status DecodeGrid(const JsonFields& fields, DeviceMesh& mesh,
                  Coordinate& coordinate) {
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::array dims,
                          fields.Array("mesh"));
  for (const simdjson::dom::element element : dims) {
    simdjson::dom::array pair;
    std::string_view name;
    int64_t size = 0;
    if (element.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get(name) != simdjson::SUCCESS ||
        pair.at(1).get(size) != simdjson::SUCCESS || size < 1 ||
        size > kMaxWorldSize) {
      return BadField("mesh", "has an element that is not [name, size]");
    }
    mesh.dims.push_back({std::string(name), static_cast<int>(size)});
  }
  TTRACE_ASSIGN_OR_RETURN(const Shape place,
                          fields.Ints("coordinate", 0, kMaxMeshDims));
  for (const int64_t c : place) {
    if (c >= kMaxWorldSize) return BadField("coordinate", "is out of range");
    coordinate.push_back(static_cast<int>(c));
  }
  return Done{};
}

Result<std::vector<MeshView>> DecodeViews(const JsonFields& fields) {
  TTRACE_ASSIGN_OR_RETURN(const simdjson::dom::array array,
                          fields.Array("views"));
  std::vector<MeshView> views;
  for (const simdjson::dom::element element : array) {
    simdjson::dom::object object;
    if (element.get(object) != simdjson::SUCCESS) {
      return BadField("views", "has an element that is not an object");
    }
    if (views.size() == static_cast<size_t>(kMaxMeshViews)) {
      return BadField("views", "is too long");
    }
    MeshView& view = views.emplace_back();
    const Status status =
        DecodeGrid(JsonFields(object), view.mesh, view.coordinate);
    if (!status.ok()) return status.error().WithContext("views");
  }
  return views;
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
  TTRACE_RETURN_IF_ERROR(
      CheckGrid(meta.mesh, meta.coordinate, meta.world_size));
  if (meta.views.size() > static_cast<size_t>(kMaxMeshViews)) {
    return Invalid(std::to_string(meta.views.size()) + " views of the mesh");
  }
  for (const MeshView& view : meta.views) {
    const Status status =
        CheckGrid(view.mesh, view.coordinate, meta.world_size);
    if (!status.ok()) return status.error().WithContext("views");
  }
  return Done{};
}

Result<std::string> EncodeRankMeta(const RankMeta& meta) {
  if (!IsUtf8(meta.run_id)) return Invalid("the run id is not UTF-8");
  const Result<std::string> adapter = CompactJsonObject(meta.adapter_json);
  if (!adapter.ok()) return adapter.error().WithContext("adapter_json");

  std::string json = "{\"format\":" + QuoteJson(kFormatName);
  json.append(",\"version\":").append(std::to_string(kFormatVersion));
  json.append(",\"rank\":").append(std::to_string(meta.rank));
  json.append(",\"world_size\":").append(std::to_string(meta.world_size));
  json.append(",").append(EncodeGrid(meta.mesh, meta.coordinate));
  if (!meta.views.empty()) {
    std::string views;
    for (const MeshView& view : meta.views) {
      views.append(views.empty() ? "{" : ",{");
      views.append(EncodeGrid(view.mesh, view.coordinate)).append("}");
    }
    json.append(",\"views\":[").append(views).append("]");
  }
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
  TTRACE_RETURN_IF_ERROR(DecodeGrid(fields, meta.mesh, meta.coordinate));
  if (fields.Has("views")) {
    TTRACE_ASSIGN_OR_RETURN(meta.views, DecodeViews(fields));
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
