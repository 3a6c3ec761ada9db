#include "src/trace/index/record_check.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "src/trace/format.h"

namespace ttrace {
namespace {

std::string ToText(const Shape& shape) {
  std::string text = "[";
  for (const int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

bool HasDim(const DeviceMesh& mesh, const std::string& name) {
  return name == "mb" || mesh.Find(name) >= 0;
}

Status CheckOccurrence(const RecordFields& record) {
  if (static_cast<int>(record.id.pass) >= kPassCount) {
    return Invalid("an invalid pass");
  }
  if (record.leg.empty()) return Invalid("a record without a leg");
  if (record.id.iteration < 0 || record.id.call < 0) {
    return Invalid("a negative iteration or call");
  }
  if (record.micro_batch < -1) return Invalid("a negative micro-batch");
  return Done{};
}

// Roles that a module which works on some tokens has.
bool MayBeRouted(Role role) {
  return role == Role::kInput || role == Role::kOutput ||
         role == Role::kGradInput || role == Role::kGradOutput;
}

// How many rows a router chose is anybody's guess; that a placement does not
// cut them, and that they are not the batch's, is not.
Result<Layout> ResolveRouted(const RankMeta& meta, const Shape& global_shape,
                             const RecordFields& record) {
  if (record.routed->expert < 0) return Invalid("a negative expert");
  if (record.box) return Invalid("routed rows that are a box");
  if (!MayBeRouted(record.id.role)) {
    return Invalid("routed rows of role " +
                   std::string(ToString(record.id.role)));
  }
  if (record.rows) return Invalid("routed rows that are rows of the batch");
  if (global_shape.empty() || record.local_shape.empty()) {
    return Invalid("routed rows without a dimension");
  }
  const DeviceMesh& mesh = meta.MeshOf(record.grid);
  const Coordinate& coordinate = meta.CoordinateIn(record.grid);
  TTRACE_RETURN_IF_ERROR(ResolveLayout(mesh, coordinate, record.placements,
                                       global_shape, std::nullopt));
  const int64_t count = record.local_shape.front();
  Shape held = global_shape;
  held.front() = count;
  TTRACE_ASSIGN_OR_RETURN(
      Layout layout, ResolveLayout(mesh, coordinate, record.placements, held,
                                   BatchRows{0, 0, count, count}));
  layout.dims.front().global_size = global_shape.front();
  return layout;
}

}  // namespace

RecordFields UnresolvedRecord(const RankMeta& meta, const RecordSpec& spec,
                              const Occurrence& occurrence) {
  RecordFields record;
  record.rank = meta.rank;
  record.id = {spec.fqn,        spec.role, occurrence.iteration,
               occurrence.call, spec.arg,  occurrence.pass};
  record.leg = occurrence.leg;
  record.micro_batch = occurrence.micro_batch;
  record.dtype = spec.dtype;
  record.local_shape = spec.local_shape;
  record.placements = spec.placements;
  record.box = spec.box;
  record.routed = spec.routed;
  record.scale = spec.scale;
  record.reduced_over = spec.reduced_over;
  record.time_us = occurrence.time_us;
  return record;
}

RecordSpec RecordFields::spec() const {
  RecordSpec spec;
  spec.fqn = id.fqn;
  spec.role = id.role;
  spec.arg = id.arg;
  spec.dtype = dtype;
  spec.local_shape = local_shape;
  spec.placements = placements;
  spec.global_shape = layout.global_shape();
  if (rows) spec.batch_dim = rows->dim;
  spec.box = box;
  spec.routed = routed;
  spec.scale = scale;
  spec.reduced_over = reduced_over;
  return spec;
}

Occurrence RecordFields::occurrence() const {
  return {leg,         id.iteration,           id.call, id.pass,
          micro_batch, rows ? rows->begin : 0, time_us};
}

Result<int> FindGrid(const RankMeta& meta, const PlacementMap& placements,
                     const std::vector<std::string>& reduced_over) {
  const int grids = static_cast<int>(meta.views.size()) + 1;
  for (int grid = 0; grid < grids; ++grid) {
    const DeviceMesh& mesh = meta.MeshOf(grid);
    if (std::all_of(placements.begin(), placements.end(),
                    [&](const auto& p) { return HasDim(mesh, p.first); }) &&
        std::all_of(reduced_over.begin(), reduced_over.end(),
                    [&](const auto& name) { return HasDim(mesh, name); })) {
      return grid;
    }
  }
  std::string names = ToString(placements) + " reduced over";
  for (const std::string& name : reduced_over) names += " " + name;
  return Invalid("no mesh has all dimensions that are named: '" +
                 Abridged(names) + "'");
}

Result<SpecFacts> CheckSpec(const RankMeta& meta, const RecordSpec& spec) {
  std::optional<BatchRows> rows;
  if (spec.batch_dim >= 0) {
    const auto dim = static_cast<size_t>(spec.batch_dim);
    if (dim >= spec.local_shape.size() || dim >= spec.global_shape.size()) {
      return Invalid("batch dimension " + std::to_string(spec.batch_dim) +
                     " of a tensor of " +
                     std::to_string(spec.local_shape.size()) + " dimensions");
    }
    rows = BatchRows{spec.batch_dim, 0, spec.local_shape[dim],
                     spec.global_shape[dim]};
  }
  Occurrence any;
  any.leg = kReal;
  RecordFields record = UnresolvedRecord(meta, spec, any);
  record.rows = rows;
  TTRACE_RETURN_IF_ERROR(CompleteRecord(meta, spec.global_shape, record));
  return SpecFacts{record.grid, std::move(record.layout), record.extent.bytes};
}

Result<RecordFields> MakeRecord(const RankMeta& meta, const RecordSpec& spec,
                                const SpecFacts& facts,
                                const Occurrence& occurrence) {
  RecordFields record = UnresolvedRecord(meta, spec, occurrence);
  TTRACE_RETURN_IF_ERROR(CheckOccurrence(record));
  record.grid = facts.grid;
  record.layout = facts.layout;
  record.extent.bytes = facts.bytes;
  if (spec.batch_dim < 0) return record;
  const auto dim = static_cast<size_t>(spec.batch_dim);
  const int64_t begin = occurrence.row_begin;
  const int64_t count = spec.local_shape[dim];
  const int64_t global = spec.global_shape[dim];
  if (begin < 0 || begin > global - count) {
    return Invalid("rows [" + std::to_string(begin) + ", +" +
                   std::to_string(count) + ") of " + std::to_string(global));
  }
  record.rows = BatchRows{spec.batch_dim, begin, count, global};
  // No placement cuts this dimension, so that its rows are in one piece.
  for (Segment& rows : record.layout.dims[dim].segments) rows.begin = begin;
  return record;
}

Status CompleteRecord(const RankMeta& meta, const Shape& global_shape,
                      RecordFields& record) {
  const int itemsize = Info(record.dtype).itemsize;
  if (itemsize == 0) return Invalid("an invalid dtype");
  if (static_cast<int>(record.id.role) >= kRoleCount) {
    return Invalid("an invalid role");
  }
  TTRACE_RETURN_IF_ERROR(CheckOccurrence(record));
  if (record.scale.numerator < 1 || record.scale.denominator < 1) {
    return Invalid("a scale that is not a positive fraction");
  }
  std::set<std::string_view> seen;
  for (const std::string& name : record.reduced_over) {
    if (!seen.insert(name).second) {
      return Invalid("reduced over '" + Abridged(name) + "' twice");
    }
  }

  TTRACE_ASSIGN_OR_RETURN(
      record.grid, FindGrid(meta, record.placements, record.reduced_over));
  TTRACE_ASSIGN_OR_RETURN(
      record.layout,
      record.routed
          ? ResolveRouted(meta, global_shape, record)
          : ResolvePiece(meta.MeshOf(record.grid),
                         meta.CoordinateIn(record.grid), record.placements,
                         global_shape, record.rows, record.box));
  const Shape expected = record.layout.local_shape();
  if (expected != record.local_shape) {
    return Invalid((record.box ? "the box and placements '" : "placements '") +
                   ToString(record.placements) + "' of global shape " +
                   ToText(global_shape) + " give " + ToText(expected) +
                   ", not the local shape " + ToText(record.local_shape));
  }
  const int64_t count = record.layout.local_count();
  if (count > std::numeric_limits<int64_t>::max() / itemsize) {
    return Invalid("the size in bytes overflows");
  }
  record.extent.bytes = count * itemsize;
  return Done{};
}

}  // namespace ttrace
