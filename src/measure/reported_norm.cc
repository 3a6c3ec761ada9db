#include "src/measure/reported_norm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/instances.h"

namespace ttrace {
namespace {

bool IsCut(const Placement& placement) {
  return !std::holds_alternative<Replicate>(placement) &&
         !std::holds_alternative<Partial>(placement);
}

void AddPart(const Side& side, const Record& piece, double square,
             NormTerm* term) {
  term->square += square;
  const DeviceMesh& mesh = side.trace().mesh(piece.grid());
  for (const auto& [name, placement] : piece.placements()) {
    const int dim = mesh.Find(name);
    if (dim < 0 || !IsCut(placement)) continue;
    const auto d = static_cast<size_t>(dim);
    std::vector<double>& squares = term->along[name];
    squares.resize(static_cast<size_t>(mesh.dims[d].size));
    const auto at = static_cast<size_t>(
        side.trace().coordinate(piece.rank(), piece.grid())[d]);
    squares[at] += square;
  }
}

bool SamePlaces(const RecordList& a, const RecordList& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Record& one, const Record& other) {
                      return one.layout() == other.layout();
                    });
}

// Sums of squares of GradientNorm.
struct Squares {
  double norm = 0;
  double rounded = 0;
};

// Adds what the primitive gave for what each rank holds of one gradient, which
// may be several boxes. False if one is not known. Copies count once, and of
// each the first rank's.
bool AddParts(const Side& side, const TensorId& id, const TensorPieces& pieces,
              Squares* squares, ReportedNorm* out) {
  NormTerm term;
  term.fqn = id.fqn;
  std::map<int, RecordList> of_ranks;
  for (const Record& piece : pieces.pieces) {
    of_ranks[piece.rank()].push_back(piece);
  }
  std::vector<const RecordList*> seen;
  bool known = true;
  for (const auto& [rank, held] : of_ranks) {
    const bool copy = std::any_of(
        seen.begin(), seen.end(),
        [&held = held](const auto* other) { return SamePlaces(held, *other); });
    if (copy) continue;
    seen.push_back(&held);
    int64_t count = 0;
    for (const Record& piece : held) count += piece.layout().local_count();
    ++out->parts;
    out->largest_part = std::max(out->largest_part, count);
    const auto* norm =
        side.facts().FindGradientNorm(rank, id.iteration, id.fqn);
    if (norm == nullptr) {
      known = known && count == 0;
      continue;
    }
    const double scale = held.front().scale().value();
    const double value = norm->norm * scale;
    squares->norm += value * value;
    squares->rounded += norm->rounded * scale * norm->rounded * scale;
    AddPart(side, held.front(), value * value, &term);
  }
  out->terms.push_back(std::move(term));
  return known;
}

// Null: it cannot be measured.
const TensorPieces* FindNorm(const Side& side, const TensorId& id) {
  const TensorPieces* reported = side.Find(kReal, id);
  if (reported == nullptr || !side.Completed(id.iteration) ||
      !side.facts().selection.empty()) {
    return nullptr;
  }
  // Not its declared shape: that may be anything.
  const Record& first = reported->pieces.front();
  return first.layout().local_count() == 1 && first.layout().global_count() == 1
             ? reported
             : nullptr;
}

}  // namespace

std::set<int> IterationsWithNorm(const Side& side) {
  std::set<int> out;
  for (const auto& [id, pieces] : side.real()) {
    if (id.role == Role::kGradNorm && FindNorm(side, id) != nullptr) {
      out.insert(id.iteration);
    }
  }
  return out;
}

Result<GradientSquare> SquareOf(const TensorPieces& gradient) {
  const auto squares = SumOfSquares(gradient);
  if (squares.ok()) return GradientSquare{squares->sum, std::nullopt};
  const Error& error = squares.error();
  if (error.code() == ErrorCode::kIo) return error;
  return GradientSquare{0, std::pair(error.code(), error.message())};
}

Result<std::optional<ReportedNorm>> MeasureReportedNorm(
    const Side& side, const TensorId& id, const GradientSquares& squares) {
  const TensorPieces* reported = FindNorm(side, id);
  if (reported == nullptr) return std::optional<ReportedNorm>();
  ReportedNorm out;
  const Shape shape = reported->global_shape();
  TTRACE_ASSIGN_OR_RETURN(const auto values,
                          ReadBox(*reported, Shape(shape.size(), 0), shape));
  out.reported = values.front();
  out.dtype = reported->pieces.front().dtype();
  double exact = 0;
  Squares primitive;
  bool any = false;
  bool known = true;
  for (const auto& [other, pieces] : side.real()) {
    if (other.role != Role::kGradReduced || other.iteration != id.iteration) {
      continue;
    }
    const auto square = squares.find(other);
    if (square == squares.end()) {
      return Error(ErrorCode::kInvalidArgument,
                   ToString(other) + ": its square was not measured");
    }
    const auto& [sum, failure] = square->second;
    if (failure) {
      if (failure->first != ErrorCode::kIncomparable) {
        return Error(failure->first, failure->second);
      }
      return std::optional<ReportedNorm>();
    }
    exact += sum;
    any = true;
    // A sum that is pending, as gradients of weights are that ranks use on
    // other tokens each: whoever takes its norm adds up its terms before.
    if (IsTerm(pieces.pieces.front())) {
      primitive.norm += sum;
      primitive.rounded += sum;
      ++out.parts;
      out.largest_sum = std::max(out.largest_sum,
                                 pieces.pieces.front().layout().global_count());
      out.terms.push_back({other.fqn, sum, {}});
      continue;
    }
    const bool of_this = AddParts(side, other, pieces, &primitive, &out);
    // Where the primitive's word is not known, as a whole.
    if (!of_this) out.terms.back() = {other.fqn, sum, {}};
    known = known && of_this;
  }
  if (!any) return std::optional<ReportedNorm>();
  out.exact = std::sqrt(exact);
  if (known) {
    out.primitive = std::sqrt(primitive.norm);
    out.rounded = std::sqrt(primitive.rounded);
  }
  out.unknown = side.facts().unrecorded_gradient;
  return std::optional<ReportedNorm>(std::move(out));
}

}  // namespace ttrace
