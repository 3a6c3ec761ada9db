#include "src/check/describe_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "src/localize/source_of_tensor.h"

namespace ttrace {
namespace {

std::string MeshWords(const DeviceMesh& mesh) {
  std::vector<std::string> dims;
  for (const MeshDim& dim : mesh.dims) {
    if (dim.size > 1) dims.push_back(fmt::format("{}={}", dim.name, dim.size));
  }
  return dims.empty() ? "1 process" : fmt::format("{}", fmt::join(dims, " "));
}

std::string NameOfGrid(const DeviceMesh& mesh, int grid) {
  if (grid == 0) return "mesh";
  std::vector<std::string> names;
  for (const MeshDim& dim : mesh.dims) names.push_back(dim.name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<GridSummary> GridsOf(const Trace& trace) {
  std::vector<GridSummary> out;
  for (int grid = 0; grid < trace.grid_count(); ++grid) {
    GridSummary& of = out.emplace_back();
    of.mesh = trace.mesh(grid);
    of.name = NameOfGrid(of.mesh, grid);
    of.coordinates.resize(static_cast<size_t>(trace.world_size()));
    for (const RankTrace& rank : trace.ranks()) {
      of.coordinates[static_cast<size_t>(rank.meta.rank)] =
          trace.coordinate(rank.meta.rank, grid);
    }
  }
  return out;
}

}  // namespace

SideSummary DescribeSide(const Side& side) {
  SideSummary out;
  out.folder = side.trace().folder();
  out.mesh = MeshWords(side.trace().mesh());
  out.world_size = side.trace().world_size();
  out.legs = side.Legs();
  out.grids = GridsOf(side.trace());
  return out;
}

std::vector<TensorForm> FormsOf(const std::vector<TensorJudgement>& tensors,
                                const Side* reference, const Side& candidate) {
  std::vector<TensorForm> out(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorPieces* pieces = candidate.Find(kReal, tensors[i].id);
    if (pieces == nullptr && reference != nullptr) {
      pieces = reference->Find(kReal, tensors[i].id);
    }
    if (pieces == nullptr) continue;
    out[i] = {pieces->global_shape(), pieces->pieces.front().dtype()};
  }
  return out;
}

std::vector<ModuleSummary> ModulesOf(const Side& side) {
  std::vector<ModuleSummary> out;
  for (const auto& [fqn, source] : side.facts().source_lines.modules()) {
    ModuleSummary& module = out.emplace_back();
    module.fqn = fqn;
    module.class_name = source->name;
    TensorId output;
    output.fqn = fqn;
    output.role = Role::kOutput;
    const SourcePlace place = SourceOf(side.facts().source_lines, output);
    module.file = place.file;
    module.line = place.line;
  }
  return out;
}

}  // namespace ttrace
