// X, W, S: what experts returned was put back to other tokens.
//
// The value of a token is the sum of its experts' rows. Where rows come back in
// another order, it is the sum of rows of other tokens, and equals no slice of
// anything. So for each wrong token those rows of all experts are looked for
// whose sum it is. That a token's value is such a sum at all is not assumed:
// the reference's has to be the sum of its own rows.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/explained.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/slices.h"
#include "src/diagnose/vectors.h"
#include "src/numeric/noise.h"

namespace ttrace {
namespace {

double DistanceOf(std::span<const double> a, std::span<const double> b) {
  return std::sqrt(SquaredDistance(a, b));
}

struct ExpertRow {
  int expert = 0;
  int64_t token = 0;
  std::vector<double> values;
  double signature = 0;
};

// The tensors in which the experts below a module hand back their rows.
std::map<int, const TensorPieces*> ReturnedBy(const ValueView& view) {
  const TensorId& own = view.id();
  std::map<int, std::pair<std::string, const TensorPieces*>> outermost;
  view.evidence().visit_reference(
      [&](const TensorId& id, const TensorPieces& pieces) {
        const Record& first = pieces.pieces.front();
        if (id.role != Role::kOutput || id.pass != own.pass ||
            id.iteration != own.iteration || id.call != own.call ||
            !first.routed() || pieces.unplaced != nullptr ||
            !id.fqn.starts_with(own.fqn + ".") ||
            pieces.global_shape().size() != 2 ||
            pieces.global_shape().back() !=
                view.reference().global_shape().back()) {
          return;
        }
        auto& known = outermost[first.routed()->expert];
        if (known.second == nullptr || id.fqn.size() < known.first.size()) {
          known = {id.fqn, &pieces};
        }
      });
  std::map<int, const TensorPieces*> out;
  for (const auto& [expert, found] : outermost) out[expert] = found.second;
  return out;
}

class SumSearch {
 public:
  // Nothing to search if what is there is too much, or cannot be read.
  explicit SumSearch(const ValueView& view) : view_(view) {
    const Shape shape = view.reference().global_shape();
    const Record& first = view.candidate().pieces.front();
    if (shape.size() != 3 || !first.rows() || first.rows()->dim > 1) return;
    batch_dim_ = static_cast<size_t>(first.rows()->dim);
    sequence_ = shape[1 - batch_dim_];
    tokens_ = sequence_ * shape[batch_dim_];
    width_ = std::min(shape.back(), kWidestSummand);
    direction_.reserve(static_cast<size_t>(width_));
    const NoiseKey key = MakeNoiseKey(0, "rows");
    for (int64_t i = 0; i < width_; ++i) {
      direction_.push_back(UniformAt(key, static_cast<uint64_t>(i)));
    }
    ReadRows(ReturnedBy(view));
    if (rows_.empty()) return;
    Shape size = shape;
    size.back() = width_;
    const Shape begin(shape.size(), 0);
    auto reference = ReadBox(view.reference(), begin, size);
    auto candidate =
        ReadBox(view.candidate(), begin, size, view.evidence().compare);
    if (!reference.ok() || !candidate.ok()) return;
    reference_ = *std::move(reference);
    candidate_ = *std::move(candidate);
    double squares = 0;
    for (const double value : reference_) squares += value * value;
    // Of the norm of a token's part: as of slices.
    limit_ = MatchTolerance(view.bound()) *
             std::sqrt(squares / static_cast<double>(tokens_));
    ready_ = std::isfinite(squares) && squares > 0 && OwnSumsAreRight();
  }

  std::optional<Diagnosis> Say() const {
    if (!ready_) return std::nullopt;
    const auto rows = static_cast<int64_t>(rows_.size());
    const double bits = BitsOfMatch(MatchTolerance(view_.bound()), width_,
                                    rows * rows);  // pairs
    if (bits < kFewestBitsOfSum) return std::nullopt;
    std::vector<int64_t> wrong;
    for (int64_t t = 0; t < tokens_; ++t) {
      if (DistanceOf(Of(candidate_, t), Of(reference_, t)) > limit_) {
        wrong.push_back(t);
      }
    }
    const size_t step = std::max<size_t>(1, wrong.size() / kMostTokensLookedAt);
    Explained found;
    std::set<const ExpertRow*> used;
    bool twice = false;
    bool along_batch = true;
    std::string example;
    for (size_t i = 0; i < wrong.size(); i += step) {
      ++found.wrong;
      const auto sum = SumFor(wrong[i]);
      if (sum.empty()) continue;
      ++found.explained;
      found.bits += bits;
      for (const ExpertRow* row : sum) {
        // A token that is right has its own rows as well.
        const bool at_home =
            !std::binary_search(wrong.begin(), wrong.end(), row->token);
        twice = !used.insert(row).second || at_home || twice;
        along_batch =
            along_batch && row->token % sequence_ == wrong[i] % sequence_;
      }
      if (found.explained == 1) example = SumWords(wrong[i], sum);
    }
    if (!IsEnough(found)) return std::nullopt;
    return Diagnosis{
        !twice        ? BugClass::kPermutation
        : along_batch ? BugClass::kStaleValue
                      : BugClass::kWrongSlice,
        fmt::format("{} of {} tokens are wrong, and of {} looked at {} are the "
                    "sum of rows that experts made for {}, within the bound: "
                    "{}, ...",
                    wrong.size(), tokens_, found.wrong, found.explained,
                    twice && along_batch
                        ? "the same place of other rows of the batch"
                        : "other tokens",
                    example),
        found.explained};
  }

 private:
  std::span<const double> Of(const std::vector<double>& values,
                             int64_t token) const {
    const int64_t row = token / sequence_;
    const int64_t place = token % sequence_;
    const int64_t at = batch_dim_ == 1 ? place * (tokens_ / sequence_) + row
                                       : row * sequence_ + place;
    return std::span(values).subspan(static_cast<size_t>(at * width_),
                                     static_cast<size_t>(width_));
  }

  double SignatureOf(std::span<const double> values) const {
    return Dot(values, direction_);
  }

  void ReadRows(const std::map<int, const TensorPieces*>& experts) {
    std::vector<ExpertRow> rows;
    for (const auto& [expert, pieces] : experts) {
      if (pieces->global_shape()[0] != tokens_) return;
      const auto values = ReadBox(*pieces, {0, 0}, {tokens_, width_});
      if (!values.ok()) return;
      for (int64_t t = 0; t < tokens_; ++t) {
        const auto row = std::span(*values).subspan(
            static_cast<size_t>(t * width_), static_cast<size_t>(width_));
        // A token of other experts is NaN.
        if (!std::all_of(row.begin(), row.end(),
                         [](double value) { return std::isfinite(value); })) {
          continue;
        }
        rows.push_back({expert, t, {row.begin(), row.end()}, SignatureOf(row)});
        if (rows.size() > kMostSummedRows) return;
      }
    }
    std::sort(rows.begin(), rows.end(),
              [](const ExpertRow& a, const ExpertRow& b) {
                return a.signature < b.signature;
              });
    rows_ = std::move(rows);
    for (const ExpertRow& row : rows_) of_token_[row.token].push_back(&row);
  }

  // The reference's values are the sums of its own rows, of few experts each.
  bool OwnSumsAreRight() const {
    for (int64_t t = 0; t < tokens_; ++t) {
      const auto own = of_token_.find(t);
      if (own == of_token_.end() || own->second.size() > kMostSummands) {
        return false;
      }
      std::vector<double> sum(static_cast<size_t>(width_), 0);
      for (const ExpertRow* row : own->second) {
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += row->values[i];
      }
      if (DistanceOf(sum, Of(reference_, t)) > limit_) return false;
    }
    return true;
  }

  // As many rows as the token has experts; empty if none fit.
  std::vector<const ExpertRow*> SumFor(int64_t token) const {
    const auto value = Of(candidate_, token);
    if (of_token_.at(token).size() == 1) {
      const ExpertRow* row = Closest({value.begin(), value.end()});
      return row == nullptr ? std::vector<const ExpertRow*>{}
                            : std::vector<const ExpertRow*>{row};
    }
    for (const ExpertRow& first : rows_) {
      std::vector<double> rest(value.begin(), value.end());
      for (size_t i = 0; i < rest.size(); ++i) rest[i] -= first.values[i];
      const ExpertRow* second = Closest(rest);
      if (second != nullptr && second != &first) return {&first, second};
    }
    return {};
  }

  // By Cauchy-Schwarz signatures differ by at most the norm of the direction
  // times the distance.
  const ExpertRow* Closest(const std::vector<double>& wanted) const {
    const double signature = SignatureOf(wanted);
    const double window = limit_ * std::sqrt(static_cast<double>(width_));
    auto at = std::lower_bound(rows_.begin(), rows_.end(), signature - window,
                               [](const ExpertRow& row, double least) {
                                 return row.signature < least;
                               });
    for (; at != rows_.end() && at->signature <= signature + window; ++at) {
      if (DistanceOf(wanted, at->values) <= limit_) return &*at;
    }
    return nullptr;
  }

  static std::string SumWords(int64_t token,
                              const std::vector<const ExpertRow*>& sum) {
    std::string out;
    for (const ExpertRow* row : sum) {
      out += fmt::format("{}expert {}'s row of token {}",
                         out.empty() ? "" : " and ", row->expert, row->token);
    }
    return fmt::format("token {} holds {}", token, out);
  }

  const ValueView& view_;
  bool ready_ = false;
  size_t batch_dim_ = 0;
  int64_t sequence_ = 0;
  int64_t tokens_ = 0;
  int64_t width_ = 0;
  double limit_ = 0;
  std::vector<double> direction_;
  std::vector<double> reference_;
  std::vector<double> candidate_;
  std::vector<ExpertRow> rows_;  // by signature
  std::map<int64_t, std::vector<const ExpertRow*>> of_token_;
};

}  // namespace

std::optional<Diagnosis> SummedRows(const ValueView& view) {
  if (view.id().role != Role::kOutput) return std::nullopt;
  return SumSearch(view).Say();
}

}  // namespace ttrace
