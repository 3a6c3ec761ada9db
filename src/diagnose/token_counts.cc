#include "src/diagnose/token_counts.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "src/compare/sample.h"

namespace ttrace {

std::map<int, double> ByMicroBatch(const TensorPieces& scalar) {
  // The ranks of one micro-batch hold copies or terms of it. A data-parallel
  // rank has micro-batches of its own, so that the sum over all ranks of the
  // trace is never complete here: terms are added by hand, and copies
  // (dimensions that are no Partial) count once.
  std::map<int, std::map<Coordinate, double>> terms;
  for (const Record& record : scalar.pieces) {
    const TensorPieces all = OfMicroBatch(scalar, record.micro_batch());
    const RankPieces own(all, record.rank());
    const Shape shape = record.layout().global_shape();
    const auto value = ReadBox(own.pieces(), Shape(shape.size(), 0), shape);
    if (!value.ok() || value->size() != 1) return {};
    const DeviceMesh& mesh = scalar.trace->mesh(record.grid());
    Coordinate place = scalar.trace->coordinate(record.rank(), record.grid());
    for (size_t d = 0; d < place.size(); ++d) {
      const std::string& name = mesh.dims[d].name;
      if (!IsPartialOver(record.placements(), name)) place[d] = 0;
    }
    terms[record.micro_batch()].emplace(std::move(place), (*value)[0]);
  }
  std::map<int, double> out;
  for (const auto& [micro_batch, places] : terms) {
    for (const auto& [place, value] : places) out[micro_batch] += value;
  }
  return out;
}

std::map<int, double> TokenCounts(const Evidence& evidence) {
  TensorId id;
  id.fqn = "loss";
  id.role = Role::kLoss;
  id.arg = "tokens";
  id.iteration = evidence.judgement->id.iteration;
  for (const TensorLookup* find :
       {&evidence.find_reference, &evidence.find_candidate}) {
    if (const TensorPieces* scalar = (*find)(id)) return ByMicroBatch(*scalar);
  }
  return {};
}

std::string ExplainByTokens(const std::map<int, double>& alpha,
                            const std::map<int, double>& tokens,
                            double tolerance) {
  const auto constant = [&](int power) {
    double low = HUGE_VAL;
    double high = 0;
    for (const auto& [micro_batch, factor] : alpha) {
      const auto found = tokens.find(micro_batch);
      if (found == tokens.end() || !(found->second > 0) || !(factor > 0)) {
        return false;
      }
      const double value = factor * std::pow(found->second, power);
      low = std::min(low, value);
      high = std::max(high, value);
    }
    return high <= low * (1 + tolerance);
  };
  // One factor for all says nothing about counts.
  if (alpha.size() < 2 || constant(0)) return "";
  if (constant(1)) {
    return "the factors are in inverse proportion to the micro-batches' token "
           "counts: each is divided by its own count instead of a common one";
  }
  if (constant(-1)) {
    return "the factors are in proportion to the micro-batches' token counts: "
           "all are divided by one number instead of each by its own count";
  }
  return "";
}

}  // namespace ttrace
