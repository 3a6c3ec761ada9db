#include "src/measure/routing_flips.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttrace {
namespace {

constexpr int64_t kSliceElements = int64_t{1} << 20;

// The experts of one token, as a map and scores list them.
class Choice {
 public:
  Choice(const double* reference, const double* candidate, size_t experts)
      : reference_(reference), candidate_(candidate), experts_(experts) {}

  // Both sides hold it.
  bool known() const {
    for (size_t e = 0; e < experts_; ++e) {
      if (std::isnan(reference_[e]) || std::isnan(candidate_[e])) return false;
    }
    return true;
  }
  bool flipped() const {
    return !std::equal(reference_, reference_ + experts_, candidate_);
  }
  double Margin(const double* scores, double scale) const {
    double margin = 0;
    int64_t more = 0;  // experts in the candidate than in the reference
    for (size_t d = 0; d < experts_; ++d) {
      more += (candidate_[d] != 0 ? 1 : 0) - (reference_[d] != 0 ? 1 : 0);
      if (!(reference_[d] != 0 && candidate_[d] == 0)) continue;
      for (size_t a = 0; a < experts_; ++a) {
        if (!(candidate_[a] != 0 && reference_[a] == 0)) continue;
        const double size =
            std::fabs(scores[d]) + std::fabs(scores[a]) + 2 * scale;
        const double apart = std::fabs(scores[d] - scores[a]);
        margin = std::max(margin, apart == 0 ? 0 : apart / size);
        // A score that is no number, or that nobody holds, is close to none.
        if (std::isnan(apart)) more = 1;
      }
    }
    return more == 0 ? margin : std::numeric_limits<double>::infinity();
  }

 private:
  const double* reference_;
  const double* candidate_;
  size_t experts_;
};

Result<double> RootMeanSquare(const TensorPieces& scores) {
  TTRACE_ASSIGN_OR_RETURN(const SquareSum squares, SumOfSquares(scores));
  if (squares.count == 0 || !std::isfinite(squares.sum)) return 0.0;
  return std::sqrt(squares.sum / static_cast<double>(squares.count));
}

}  // namespace

bool MayBeRoutingMap(const TensorId& id, const TensorPieces& pieces) {
  return id.role == Role::kOutput &&
         pieces.pieces.front().dtype() == DType::kBool &&
         pieces.global_shape().size() == 3;
}

Result<RoutingFlips> MeasureFlips(const TensorPieces& reference,
                                  const TensorPieces& candidate,
                                  const TensorPieces& scores,
                                  const CompareOptions& options) {
  const Shape shape = reference.global_shape();
  if (candidate.global_shape() != shape || scores.global_shape() != shape) {
    return Error(ErrorCode::kIncomparable,
                 "a routing map and its scores are of different shapes");
  }
  RoutingFlips out;
  out.tokens = shape[0] * shape[1];
  // Nothing is given room or walked through that no file holds.
  if (!reference.MayBeWhole() || !candidate.MayBeWhole()) {
    return Error(ErrorCode::kIncomparable, "a routing map is not whole");
  }
  TTRACE_ASSIGN_OR_RETURN(const double scale, RootMeanSquare(scores));
  const auto experts = static_cast<size_t>(shape[2]);
  const int64_t step =
      std::max<int64_t>(1, kSliceElements / (shape[1] * shape[2]));
  for (int64_t begin = 0; begin < shape[0]; begin += step) {
    const Shape at = {begin, 0, 0};
    const Shape size = {std::min(step, shape[0] - begin), shape[1], shape[2]};
    TTRACE_ASSIGN_OR_RETURN(const std::vector<double> r,
                            ReadBox(reference, at, size));
    TTRACE_ASSIGN_OR_RETURN(const std::vector<double> c,
                            ReadBox(candidate, at, size, options));
    std::vector<double> s;
    for (size_t i = 0; i < r.size(); i += experts) {
      const Choice choice(r.data() + i, c.data() + i, experts);
      if (!choice.known() || !choice.flipped()) continue;
      if (s.empty()) {
        TTRACE_ASSIGN_OR_RETURN(s, ReadBox(scores, at, size));
      }
      const auto n = static_cast<int64_t>(i / experts);
      const int64_t place = begin + n / shape[1];
      const int64_t row = n % shape[1];
      out.flipped.push_back(
          {row * shape[0] + place, choice.Margin(s.data() + i, scale)});
    }
  }
  std::sort(out.flipped.begin(), out.flipped.end(),
            [](const FlippedToken& a, const FlippedToken& b) {
              return a.token < b.token;
            });
  return out;
}

}  // namespace ttrace
