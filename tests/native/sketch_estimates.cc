// How far sketches are from what they estimate, on tensors of two traces that
// hold values (scripts/sketch_accuracy.py):
//
//   sketch_estimates REFERENCE LEG CANDIDATE LEG BUCKETS SEEDS
//
// For each tensor of both legs that differs, is finite and is larger than a
// sketch, one line of JSON: what it is, the norms, how many elements differ,
// and for each of the hashes 1 ... SEEDS the estimated norm of the difference
// by the exact one. `missed` counts the intervals that did not hold it. As in a
// check, sketches are of pieces, weighed and added up.

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/instances.h"
#include "src/numeric/sketch.h"
#include "src/trace/reader.h"

namespace ttrace {
namespace {

// One piece, read once for all seeds.
struct Piece {
  std::vector<std::byte> bytes;
  DType dtype = DType::kF32;
  Layout layout;
  double weight = 1;
};

// The first copy of each region.
Result<std::vector<Piece>> ReadPieces(const TensorPieces& pieces) {
  TTRACE_ASSIGN_OR_RETURN(const auto groups, GroupInstances(pieces, {}));
  std::vector<Piece> out;
  for (const InstanceGroup& group : groups) {
    for (const Term& term : group.instances.front().terms) {
      const Record& record = term.record;
      Piece& piece = out.emplace_back();
      piece.dtype = record.dtype();
      piece.layout = group.layout;
      piece.weight = term.weight;
      piece.bytes.resize(static_cast<size_t>(group.layout.local_count()) *
                         static_cast<size_t>(Info(record.dtype()).itemsize));
      TTRACE_RETURN_IF_ERROR(pieces.trace->Read(record, 0, piece.bytes));
    }
  }
  return out;
}

Result<Sketch> SketchOf(const std::vector<Piece>& pieces, uint64_t seed,
                        size_t buckets) {
  Sketch out(seed, buckets);
  for (const Piece& piece : pieces) {
    const std::vector<int64_t> strides =
        RowMajorStrides(piece.layout.local_shape());
    Sketch own(seed, buckets);
    TTRACE_RETURN_IF_ERROR(
        own.Add({piece.bytes.data(), piece.dtype, strides, piece.layout}));
    TTRACE_RETURN_IF_ERROR(out.Merge(own, piece.weight));
  }
  return out;
}

struct Exact {
  double reference = 0;  // norms
  double candidate = 0;
  double distance = 0;
  int64_t differing = 0;  // elements
  // (sum d^2)^2 / sum d^4: n, if n elements differ by as much.
  double participation = 0;
};

Result<Exact> ExactlyOf(const TensorPieces& reference,
                        const TensorPieces& candidate) {
  const Shape shape = reference.global_shape();
  const Shape origin(shape.size(), 0);
  TTRACE_ASSIGN_OR_RETURN(const auto r, ReadBox(reference, origin, shape));
  TTRACE_ASSIGN_OR_RETURN(const auto c, ReadBox(candidate, origin, shape));
  Exact out;
  double fourth = 0;
  for (size_t i = 0; i < r.size(); ++i) {
    const double square = (c[i] - r[i]) * (c[i] - r[i]);
    out.reference += r[i] * r[i];
    out.candidate += c[i] * c[i];
    out.distance += square;
    fourth += square * square;
    out.differing += square > 0 ? 1 : 0;
  }
  out.participation = fourth > 0 ? out.distance * out.distance / fourth : 0;
  for (double* x : {&out.reference, &out.candidate, &out.distance}) {
    *x = std::sqrt(*x);
  }
  return out;
}

// Nothing: there is nothing to estimate.
Result<nlohmann::json> Judge(const TensorPieces& reference,
                             const TensorPieces& candidate, size_t buckets,
                             int seeds) {
  TTRACE_ASSIGN_OR_RETURN(const Exact exact, ExactlyOf(reference, candidate));
  const bool known = std::isfinite(exact.distance) && exact.reference > 0;
  if (!known || exact.differing == 0) return nlohmann::json();
  TTRACE_ASSIGN_OR_RETURN(const auto r, ReadPieces(reference));
  TTRACE_ASSIGN_OR_RETURN(const auto c, ReadPieces(candidate));
  std::vector<double> ratios;
  int missed = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto number = static_cast<uint64_t>(seed);
    TTRACE_ASSIGN_OR_RETURN(const Sketch a, SketchOf(r, number, buckets));
    TTRACE_ASSIGN_OR_RETURN(const Sketch b, SketchOf(c, number, buckets));
    TTRACE_ASSIGN_OR_RETURN(
        const SketchEstimate estimate,
        EstimateDistance(a, exact.reference, b, exact.candidate));
    ratios.push_back(estimate.value / exact.distance);
    const bool held =
        estimate.low <= exact.distance && exact.distance <= estimate.high;
    missed += held ? 0 : 1;
  }
  return nlohmann::json{{"norm", exact.reference},
                        {"distance", exact.distance},
                        {"differing", exact.differing},
                        {"participation", exact.participation},
                        {"missed", missed},
                        {"ratios", std::move(ratios)}};
}

int Fail(const std::string& why) {
  std::fprintf(stderr, "sketch_estimates: %s\n", why.c_str());
  return 2;
}

bool IsTaken(const TensorPieces& pieces, size_t buckets) {
  const Record& first = pieces.pieces.front();
  int64_t elements = 1;
  for (const int64_t size : pieces.global_shape()) elements *= size;
  return !pieces.unplaced && !pieces.tokens && pieces.MayBeWhole() &&
         Info(first.dtype()).floating &&
         elements > static_cast<int64_t>(buckets);
}

int Run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 6) return Fail("see the head of its source");
  const auto reference = Trace::Open(arguments[0]);
  const auto candidate = Trace::Open(arguments[2]);
  if (!reference.ok()) return Fail(reference.error().message());
  if (!candidate.ok()) return Fail(candidate.error().message());
  const Catalog refs(*reference);
  const Catalog cands(*candidate);
  const auto buckets = static_cast<size_t>(std::atoi(arguments[4].c_str()));
  const int seeds = std::atoi(arguments[5].c_str());
  for (const auto& [id, pieces] : cands.tensors(arguments[3])) {
    if (IsEdge(id.role)) continue;  // of what others put out
    const TensorPieces* other = refs.Find(arguments[1], id);
    if (other == nullptr || !IsTaken(*other, buckets) ||
        !IsTaken(pieces, buckets)) {
      continue;
    }
    const auto judged = Judge(*other, pieces, buckets, seeds);
    // Of what has only numbers, or lacks a piece.
    if (!judged.ok() || judged->is_null()) continue;
    nlohmann::json line = *judged;
    line["role"] = ToString(id.role);
    line["fqn"] = id.fqn;
    line["arg"] = id.arg;
    line["iteration"] = id.iteration;
    line["dtype"] = Info(pieces.pieces.front().dtype()).torch_name;
    line["shape"] = pieces.global_shape();
    std::puts(line.dump().c_str());
  }
  return 0;
}

}  // namespace
}  // namespace ttrace

int main(int argc, char** argv) {
  return ttrace::Run(std::vector<std::string>(argv + 1, argv + argc));
}
