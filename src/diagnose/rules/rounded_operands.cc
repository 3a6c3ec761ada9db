// D: a linear module rounded its operands to few bits, other than the
// reference's did. What it computes on in full precision is on no grid, so the
// rounding is done again: of the input and the weight that were recorded.
//
// Whether a module is linear in this way is not assumed: both sides' outputs,
// and their difference, have to come out.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "src/compare/sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/linear_operands.h"
#include "src/diagnose/operand_rounding.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/vectors.h"

namespace ttrace {
namespace {

struct LinearLayer {
  const TensorPieces* input = nullptr;   // [..., in]
  const TensorPieces* weight = nullptr;  // [out, in]
  // The candidate's input: who rounded what. May be null.
  const TensorPieces* other_input = nullptr;
};

// As the module finds it: the parameter, or what the last step made of it.
const TensorPieces* FindWeight(const ValueView& view) {
  const TensorId& output = view.id();
  TensorId id;
  id.fqn = output.fqn.empty() ? "weight" : output.fqn + ".weight";
  id.role = Role::kParam;
  id.iteration = output.iteration;
  const TensorPieces* found = view.evidence().find_reference(id);
  if (found != nullptr) return found;
  id.role = Role::kParamUpdated;
  id.pass = Pass::kOptimizer;
  --id.iteration;
  return view.evidence().find_reference(id);
}

std::optional<LinearLayer> FindLayer(const ValueView& view) {
  const TensorId& output = view.id();
  LinearLayer out;
  out.weight = FindWeight(view);
  if (out.weight == nullptr || !IsFloating(*out.weight)) return std::nullopt;
  const Shape made = view.reference().global_shape();
  const Shape weight = out.weight->global_shape();
  if (made.size() < 2 || view.candidate().global_shape() != made ||
      weight.size() != 2 || made.back() != weight.front() ||
      weight.back() < 1) {
    return std::nullopt;
  }
  Shape given = made;
  given.back() = weight.back();
  for (const Operand& input :
       OperandsOf(view.evidence(), output.fqn, Role::kInput, output.iteration,
                  weight.back())) {
    if (input.id.pass == output.pass && input.id.call == output.call &&
        input.pieces->global_shape() == given) {
      out.input = input.pieces;
      out.other_input = view.evidence().find_candidate(input.id);
    }
  }
  return out.input == nullptr ? std::nullopt : std::optional<LinearLayer>(out);
}

// The shortest run along `dim` that a piece holds: what is not longer, and
// begins or ends where the tensor does, is in one piece.
int64_t Together(const TensorPieces* pieces, size_t dim, int64_t limit) {
  if (pieces == nullptr || dim >= pieces->global_shape().size()) return limit;
  for (const Record& record : pieces->pieces) {
    for (const Segment& run : record.layout().dims[dim].segments) {
      limit = std::min(limit, run.size);
    }
  }
  return limit;
}

// Neighbours at the corners of the output, whose operands one rank rounded in
// one micro-batch, on either side: another piece has another scale.
std::vector<SampledBox> Corners(const ValueView& view,
                                const LinearLayer& linear) {
  const Shape shape = view.reference().global_shape();
  const int64_t inner = linear.weight->global_shape().back();
  const size_t last = shape.size() - 1;
  Shape size(shape.size(), 1);
  const int64_t work = std::max<int64_t>(kMostMultiplications / inner, 1);
  const auto in_one_piece = [&](size_t d, int64_t limit) {
    limit = Together(&view.reference(), d, std::min(limit, shape[d]));
    limit = Together(&view.candidate(), d, limit);
    if (d == last) return limit;
    return Together(linear.other_input, d, limit);
  };
  size[last] = in_one_piece(last, std::min(kCornerColumns, work));
  int64_t left =
      std::min(kCornerTokens, work / std::max<int64_t>(size[last], 1));
  for (size_t d = last; d-- > 0 && left > 0;) {
    size[d] = in_one_piece(d, left);
    left /= std::max<int64_t>(size[d], 1);
  }
  std::vector<SampledBox> out;
  for (const bool last_tokens : {false, true}) {
    for (const bool last_columns : {false, true}) {
      SampledBox box{Shape(shape.size(), 0), size};
      for (size_t d = 0; d < shape.size(); ++d) {
        const bool at_end = d == last ? last_columns : last_tokens;
        if (at_end) box.begin[d] = shape[d] - size[d];
      }
      out.push_back(std::move(box));
    }
  }
  return out;
}

std::string OperandScaleWords(double scale) {
  if (scale == 0) return "as it is";
  while (scale >= 2) scale /= 2;
  while (scale < 1) scale *= 2;
  return fmt::format("2^k x {:.4g}", scale);
}

std::string RoundingWords(const OperandRounding& rounding) {
  if (rounding.bits == 0) return "neither rounded";
  return fmt::format(
      "{} significant bits, scale of the input {}, of the "
      "weight {}",
      rounding.bits, OperandScaleWords(rounding.left_scale),
      OperandScaleWords(rounding.right_scale));
}

// What one corner shows.
struct Corner {
  bool wrong = false;
  bool explained = false;
  double rest = 0;  // of the square of the error
  OperandRounding candidate;
  OperandRounding reference;
};

std::optional<Corner> LookAtCorner(const ValueView& view,
                                   const LinearLayer& linear,
                                   const SampledBox& box) {
  const size_t last = box.begin.size() - 1;
  SampledBox given = box;
  given.begin[last] = 0;
  given.size[last] = linear.weight->global_shape().back();
  const Shape from = {box.begin[last], 0};
  const Shape rows = {box.size[last], given.size[last]};
  const auto input = ReadBox(*linear.input, given.begin, given.size);
  const auto weight = ReadBox(*linear.weight, from, rows);
  const auto expected = ReadBox(view.reference(), box.begin, box.size);
  const auto made = ReadBox(view.candidate(), box.begin, box.size);
  if (!input.ok() || !weight.ok() || !expected.ok() || !made.ok()) {
    return std::nullopt;
  }
  Operands operands;
  operands.columns = static_cast<size_t>(rows[0]);
  operands.inner = static_cast<size_t>(rows[1]);
  operands.rows = made->size() / operands.columns;
  operands.left = *input;
  operands.right = *weight;
  Corner out;
  std::vector<double> error(made->size());
  for (size_t i = 0; i < error.size(); ++i) {
    error[i] = (*made)[i] - (*expected)[i];
  }
  const double square = SquaredNorm(error);
  const double bound = kSlack * view.bound();
  out.wrong = !(square <= bound * bound * SquaredNorm(*expected));
  if (!out.wrong) return out;
  out.candidate = FitRounding(operands, *made);
  if (out.candidate.bits == 0) return out;
  out.reference = FitRounding(operands, *expected);
  for (size_t i = 0; i < error.size(); ++i) {
    error[i] -= out.candidate.product[i] - out.reference.product[i];
  }
  out.rest = SquaredNorm(error) / square;
  // One that rounds less than the reference has lost nothing.
  const bool lost =
      out.reference.bits == 0 || out.candidate.bits <= out.reference.bits;
  out.explained = lost && out.rest <= kUnexplainedByRounding;
  return out;
}

}  // namespace

std::optional<Diagnosis> RoundedOperands(const ValueView& view) {
  if (view.id().role != Role::kOutput ||
      // Rows in another order than the reference's have no neighbours.
      view.evidence().compare.rows != nullptr) {
    return std::nullopt;
  }
  const auto linear = FindLayer(view);
  if (!linear) return std::nullopt;
  const auto boxes = Corners(view, *linear);
  int64_t values = 1;
  for (const int64_t n : boxes.front().size) values *= n;
  if (values < kFewestRounded) return std::nullopt;
  std::vector<Corner> wrong;
  for (const SampledBox& box : boxes) {
    const auto corner = LookAtCorner(view, *linear, box);
    if (!corner) return std::nullopt;
    if (!corner->wrong) continue;
    if (!corner->explained) return std::nullopt;
    wrong.push_back(*corner);
  }
  if (wrong.empty()) return std::nullopt;
  const auto least = std::min_element(
      wrong.begin(), wrong.end(),
      [](const Corner& a, const Corner& b) { return a.rest < b.rest; });
  double most = 0;
  for (const Corner& corner : wrong) most = std::fmax(most, corner.rest);
  return Diagnosis{
      BugClass::kLostPrecision,
      fmt::format(
          "the product of its input and weight, both as recorded and then "
          "rounded, leaves at most {:.2g} % of the error in {} of {} corners "
          "of "
          "{} values: rounded here to {}; in the reference: {}",
          100 * std::sqrt(most), wrong.size(), boxes.size(), values,
          RoundingWords(least->candidate), RoundingWords(least->reference)),
      static_cast<double>(least->candidate.bits)};
}

}  // namespace ttrace
