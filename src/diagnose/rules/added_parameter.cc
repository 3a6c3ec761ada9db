// K: one of the module's own parameters is added another number of times.
//
// What is added before a sum over ranks is added by each of them: a bias, once
// by each rank of a row-parallel layer instead of once after the sum. Then
// candidate minus reference is a whole number times that parameter, the same in
// every row, and nothing else.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/explained.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

// Whether `part` are the last dimensions of `whole`, and not all of them: the
// others count rows.
bool IsOfEachRow(const Shape& part, const Shape& whole) {
  return !part.empty() && part.size() < whole.size() &&
         std::equal(part.rbegin(), part.rend(), whole.rbegin());
}

// The newest value that the forward pass of `iteration` may have used of each
// parameter of the culprit's module and the modules in it, by name.
std::map<std::string, TensorId> OwnParameters(const ValueView& view,
                                              const Shape& shape) {
  const TensorId& of = view.id();
  std::map<std::string, TensorId> out;
  view.evidence().visit_reference([&](const TensorId& id,
                                      const TensorPieces& value) {
    const bool before_step = id.role == Role::kParam;
    const bool after_step = id.role == Role::kParamUpdated;
    if ((!before_step && !after_step) || !id.fqn.starts_with(of.fqn + ".") ||
        id.iteration > of.iteration - (after_step ? 1 : 0) ||
        !IsOfEachRow(value.global_shape(), shape)) {
      return;
    }
    const auto [found, is_new] = out.try_emplace(id.fqn, id);
    const auto age = [](const TensorId& value_id) {
      return std::pair(value_id.iteration,
                       value_id.role == Role::kParamUpdated);
    };
    if (!is_new && age(found->second) < age(id)) found->second = id;
  });
  return out;
}

// The values of a parameter of `shape` at the places of a sample of what has it
// in every row.
std::vector<double> InEachRow(const std::vector<double>& values,
                              const Shape& shape,
                              const std::vector<SampledBox>& boxes) {
  std::vector<double> out;
  for (const SampledBox& box : boxes) {
    int64_t count = 1;
    for (const int64_t n : box.size) count *= n;
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i;
      int64_t at = 0;
      int64_t stride = 1;
      for (size_t d = 0; d < shape.size(); ++d) {
        const size_t of_box = box.size.size() - 1 - d;
        at += stride * (box.begin[of_box] + rest % box.size[of_box]);
        rest /= box.size[of_box];
        stride *= shape[shape.size() - 1 - d];
      }
      out.push_back(values[static_cast<size_t>(at)]);
    }
  }
  return out;
}

struct WholeFit {
  double times = 0;  // a whole number
  double rest = 0;   // what it leaves of the error, relative to the values
};

// Nothing unless the error is a whole number times `added`, within the bound.
std::optional<WholeFit> FitWhole(const SampledPair& pair,
                                 const std::vector<double>& added,
                                 double bound) {
  double along = 0;
  double added_sq = 0;
  double reference_sq = 0;
  double candidate_sq = 0;
  double error_sq = 0;
  for (size_t i = 0; i < added.size(); ++i) {
    const double error = pair.candidate[i] - pair.reference[i];
    along += error * added[i];
    added_sq += added[i] * added[i];
    reference_sq += pair.reference[i] * pair.reference[i];
    candidate_sq += pair.candidate[i] * pair.candidate[i];
    error_sq += error * error;
  }
  // False for what is not finite, too.
  if (!(added_sq > 0) || !std::isfinite(along) || !std::isfinite(error_sq)) {
    return std::nullopt;
  }
  const double size = std::sqrt(std::max(reference_sq, candidate_sq));
  // A coarser bound does not tell one whole number from the next.
  if (!(bound * size <= std::sqrt(added_sq) / 4)) return std::nullopt;
  const double times = std::round(along / added_sq);
  double rest_sq = 0;
  for (size_t i = 0; i < added.size(); ++i) {
    const double rest =
        pair.candidate[i] - pair.reference[i] - times * added[i];
    rest_sq += rest * rest;
  }
  const double rest = std::sqrt(rest_sq);
  if (!(rest <= bound * size)) return std::nullopt;
  // Of an error that is the same in all rows, the direction alone could be
  // this one by chance. Equal values of the parameter are one dimension of it.
  const std::set<double> distinct(added.begin(), added.end());
  const double least = std::numeric_limits<double>::epsilon() * size;
  const auto values = static_cast<double>(distinct.size());
  if (!IsEnough({1, 1,
                 (values - 1) *
                     std::log2(std::sqrt(error_sq) / std::max(rest, least))})) {
    return std::nullopt;
  }
  return WholeFit{times, rest / size};
}

}  // namespace

std::optional<Diagnosis> AddedParameter(const ValueView& view) {
  const TensorId& id = view.id();
  if (id.role != Role::kOutput || id.fqn.empty()) return std::nullopt;
  const Shape shape = view.reference().global_shape();
  const std::map<std::string, TensorId> parameters = OwnParameters(view, shape);
  if (parameters.empty()) return std::nullopt;
  const SampledPair* pair = view.sample();
  if (pair == nullptr) return std::nullopt;
  const double bound = view.bound();
  for (const auto& [name, parameter] : parameters) {
    const TensorPieces* pieces = view.evidence().find_candidate(parameter);
    if (pieces == nullptr) pieces = view.evidence().find_reference(parameter);
    if (pieces == nullptr || !pieces->MayBeWhole() ||
        !IsOfEachRow(pieces->global_shape(), shape)) {
      continue;
    }
    const Shape of_each = pieces->global_shape();
    int64_t elements = 1;
    for (const int64_t n : of_each) elements *= n;
    if (elements > kInMemory) continue;
    const auto values = ReadBox(*pieces, Shape(of_each.size(), 0), of_each);
    if (!values.ok()) continue;
    const auto fit =
        FitWhole(*pair, InEachRow(*values, of_each, pair->boxes), bound);
    if (!fit) continue;
    const double count = fit->times + 1;
    std::string words;
    if (count == 0) {
      words = "it is not added";
    } else {
      words = fmt::format("it counts {:.0f} times instead of once{}", count,
                          FactorNameWords(view.evidence(), count, 0));
    }
    return Diagnosis{
        BugClass::kConstantFactor,
        fmt::format("candidate minus reference is {:.0f} x {} in every row "
                    "({:.1e} of the values is not explained, the bound "
                    "{:.1e}): {}{}",
                    fit->times, name, fit->rest, bound, words,
                    SampleWords(*pair)),
        count};
  }
  return std::nullopt;
}

}  // namespace ttrace
