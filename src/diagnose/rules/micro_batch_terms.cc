// S, P and L by terms: which micro-batches a parameter's gradient is the sum
// of.
//
// A linear layer's weight gradient is the sum over tokens of (arriving gradient
// x input), a bias's that of the arriving gradient. Both are recorded, so each
// micro-batch's term is made again on a sample of rows and columns, and fitted
// to what the candidate holds. Whether a module is linear in this way is not
// assumed: the reference's own gradient has to come out as their plain sum.
//
// Micro-batches that a reduced gradient lacks are stale or lost (S), unless
// they are all those of some ranks: these ranks' sums were not added (P).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/base/rank_words.h"
#include "src/compare/sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/decomposition.h"
#include "src/diagnose/linear_operands.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/token_counts.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

// Rows of the global batch of each micro-batch, as the candidate ran them.
using BatchParts = std::map<int, std::pair<int64_t, int64_t>>;

struct LinearGradient {
  const TensorPieces* arriving = nullptr;  // grad_output [..., out]
  const TensorPieces* input = nullptr;     // [..., in]; null for a bias
  BatchParts parts;
  std::map<int, std::set<int>> of_rank;  // its micro-batches
  size_t batch_dim = 0;
};

std::string ModuleOf(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

int64_t TokensOf(const Shape& shape) {
  int64_t tokens = 1;
  for (size_t d = 0; d + 1 < shape.size(); ++d) tokens *= shape[d];
  return tokens;
}

std::optional<LinearGradient> FindGradient(const ValueView& view,
                                           const TensorId& id,
                                           const Shape& shape) {
  const std::string module = ModuleOf(id.fqn);
  const auto arriving = OperandsOf(view.evidence(), module, Role::kGradOutput,
                                   id.iteration, shape.front());
  // A module that is called twice has two sums in one gradient.
  if (arriving.size() != 1) return std::nullopt;
  LinearGradient out;
  out.arriving = arriving.front().pieces;
  if (shape.size() == 2) {
    const auto inputs = OperandsOf(view.evidence(), module, Role::kInput,
                                   id.iteration, shape.back());
    const auto input =
        std::find_if(inputs.begin(), inputs.end(), [](const Operand& operand) {
          return operand.id.pass == Pass::kForward;
        });
    if (input == inputs.end()) return std::nullopt;
    out.input = input->pieces;
  }
  const Shape tokens = out.arriving->global_shape();
  if (out.input != nullptr) {
    const Shape in = out.input->global_shape();
    if (in.size() != tokens.size() ||
        !std::equal(in.begin(), in.end() - 1, tokens.begin())) {
      return std::nullopt;
    }
  }
  const TensorPieces* candidate =
      view.evidence().find_candidate(arriving.front().id);
  if (candidate == nullptr || TokensOf(tokens) > kMostTokensOfTerms) {
    return std::nullopt;
  }
  for (const Record& record : candidate->pieces) {
    if (!record.rows() || record.micro_batch() < 0) return std::nullopt;
    out.batch_dim = static_cast<size_t>(record.rows()->dim);
    out.parts[record.micro_batch()] = {record.rows()->begin,
                                       record.rows()->count};
    out.of_rank[record.rank()].insert(record.micro_batch());
  }
  // Rows in another order than the reference's have no ranges.
  if (view.evidence().compare.rows != nullptr || out.parts.size() < 2 ||
      out.parts.size() > kMostMicroBatches || out.batch_dim >= tokens.size()) {
    return std::nullopt;
  }
  return out;
}

// A few indices spread over [0, size), as one run each.
std::vector<SampledBox> Spread(const Shape& shape, size_t dim, int64_t wanted) {
  std::vector<SampledBox> out;
  const int64_t n = std::min(wanted, shape[dim]);
  for (int64_t i = 0; i < n; ++i) {
    SampledBox box{Shape(shape.size(), 0), shape};
    box.begin[dim] = i * shape[dim] / n;
    box.size[dim] = 1;
    out.push_back(std::move(box));
  }
  return out;
}

// Columns `boxes` of [..., features], each as a vector over one micro-batch's
// tokens.
Result<std::vector<std::vector<double>>> Columns(
    const TensorPieces& pieces, std::vector<SampledBox> boxes,
    const LinearGradient& linear, const std::pair<int64_t, int64_t>& rows) {
  std::vector<std::vector<double>> out;
  for (SampledBox& box : boxes) {
    box.begin[linear.batch_dim] = rows.first;
    box.size[linear.batch_dim] = rows.second;
    TTRACE_ASSIGN_OR_RETURN(auto column, ReadBox(pieces, box.begin, box.size));
    out.push_back(std::move(column));
  }
  return out;
}

struct BatchTerms {
  std::vector<int> micro_batches;
  std::vector<std::vector<double>> values;  // one a micro-batch
  std::vector<SampledBox> boxes;  // of the gradient, in the same order
};

Result<BatchTerms> MakeTerms(const LinearGradient& linear, const Shape& shape) {
  BatchTerms out;
  const Shape arriving_shape = linear.arriving->global_shape();
  const auto rows =
      Spread(arriving_shape, arriving_shape.size() - 1, kTermRows);
  std::vector<SampledBox> columns;
  if (linear.input != nullptr) {
    const Shape input_shape = linear.input->global_shape();
    columns = Spread(input_shape, input_shape.size() - 1, kTermColumns);
  }
  for (const SampledBox& row : rows) {
    if (columns.empty()) out.boxes.push_back({{row.begin.back()}, {1}});
    for (const SampledBox& column : columns) {
      out.boxes.push_back(
          {{row.begin.back(), column.begin.back()}, Shape(shape.size(), 1)});
    }
  }
  for (const auto& [micro_batch, part] : linear.parts) {
    TTRACE_ASSIGN_OR_RETURN(const auto left,
                            Columns(*linear.arriving, rows, linear, part));
    std::vector<std::vector<double>> right;
    if (linear.input != nullptr) {
      TTRACE_ASSIGN_OR_RETURN(right,
                              Columns(*linear.input, columns, linear, part));
    }
    std::vector<double> values;
    for (const auto& l : left) {
      double alone = 0;
      for (const double value : l) alone += value;
      if (columns.empty()) values.push_back(alone);
      for (const auto& r : right) {
        double sum = 0;
        for (size_t i = 0; i < l.size(); ++i) sum += l[i] * r[i];
        values.push_back(sum);
      }
    }
    out.micro_batches.push_back(micro_batch);
    out.values.push_back(std::move(values));
  }
  return out;
}

std::string WeightWords(const BatchTerms& terms, const Decomposition& fit,
                        double unit) {
  std::string out;
  for (size_t i = 0; i < fit.weights.size() && i < 8; ++i) {
    // Three decimals: the fit is not certain of more.
    const double weight = std::round(fit.weights[i] / unit * 1e3) / 1e3;
    out += fmt::format("{}{:g}", i == 0 ? "" : ", ", weight + 0.0);
  }
  return out + (terms.values.size() > 8 ? ", ..." : "");
}

// The ranks of which no micro-batch is there; empty unless all are of such
// ranks or of others.
std::vector<int> RanksLeftOut(const LinearGradient& linear,
                              const std::vector<int>& left_out) {
  const std::set<int> out(left_out.begin(), left_out.end());
  std::vector<int> ranks;
  for (const auto& [rank, own] : linear.of_rank) {
    const bool lacks = std::all_of(own.begin(), own.end(),
                                   [&](int m) { return out.contains(m); });
    const bool has = std::none_of(own.begin(), own.end(),
                                  [&](int m) { return out.contains(m); });
    if (!lacks && !has) return {};
    if (lacks) ranks.push_back(rank);
  }
  return ranks;
}

std::optional<Diagnosis> ByWeights(const TensorId& parameter,
                                   const ValueView& view,
                                   const LinearGradient& linear,
                                   const BatchTerms& terms,
                                   const Decomposition& fit, double unit) {
  std::vector<int> in;
  std::vector<int> out;
  std::vector<int> often;
  std::map<int, double> factors;
  bool whole = true;
  for (size_t i = 0; i < fit.weights.size(); ++i) {
    const double weight = fit.weights[i] / unit;
    const double uncertain = std::fmax(kWholeWithin, fit.uncertainty[i] / unit);
    if (!(uncertain <= kMostUncertain)) return std::nullopt;
    factors[terms.micro_batches[i]] = weight;
    whole = whole && std::fabs(weight - std::round(weight)) <= uncertain;
    const double near = std::round(weight);
    (near == 0   ? out
     : near == 1 ? in
                 : often)
        .push_back(terms.micro_batches[i]);
  }
  const std::string start = fmt::format(
      "the gradient of {}, fitted by the terms of its {} micro-batches "
      "(arriving "
      "gradient x input), holds them {} times (residual {:.1e})",
      parameter.fqn, fit.weights.size(), WeightWords(terms, fit, unit),
      fit.residual);
  const std::vector<int> ranks = RanksLeftOut(linear, out);
  if (whole && !in.empty() && !ranks.empty() &&
      parameter.role == Role::kGradReduced) {
    return Diagnosis{BugClass::kMissingPartialSum,
                     fmt::format("{}: only {}, and none of {}: the sum over "
                                 "ranks was not made",
                                 start, MicroBatchWords(in), RankWords(ranks)),
                     static_cast<double>(out.size())};
  }
  if (whole && !out.empty() && !in.empty()) {
    return Diagnosis{BugClass::kStaleValue,
                     fmt::format("{}: only {}; {} overwritten or left out",
                                 start, MicroBatchWords(in),
                                 MicroBatchWords(out) +
                                     (out.size() == 1 ? " was" : " were")),
                     static_cast<double>(out.size())};
  }
  if (whole && out.empty() && !in.empty() && !often.empty()) {
    return Diagnosis{BugClass::kStaleValue,
                     fmt::format("{}: {} counted more than once", start,
                                 MicroBatchWords(often)),
                     static_cast<double>(often.size())};
  }
  const double tolerance =
      2 * std::fmax(kWholeWithin, fit.worst_uncertainty() / unit);
  const bool alike =
      std::all_of(factors.begin(), factors.end(), [&](const auto& factor) {
        const double first = factors.begin()->second;
        return std::fabs(factor.second - first) <=
               tolerance * std::fmax(1, std::fabs(first));
      });
  if (whole || alike) return std::nullopt;  // a constant factor
  const std::string tokens =
      ExplainByTokens(factors, TokenCounts(view.evidence()), tolerance);
  if (tokens.empty()) return std::nullopt;
  return Diagnosis{BugClass::kLossNormalisation, start + "; " + tokens,
                   factors.begin()->second};
}

}  // namespace

std::optional<Diagnosis> MicroBatchTerms(const ValueView& view) {
  // Terms that came after a reduction were neither overwritten nor left out.
  if (view.evidence().reduced_early != nullptr) return std::nullopt;
  // Nor those that were cleared.
  if (view.evidence().cleared != nullptr) return std::nullopt;
  const Role role = view.id().role;
  if (role != Role::kGradLocal && role != Role::kGradReduced) {
    return std::nullopt;
  }
  std::vector<const TensorJudgement*> witnesses = {view.evidence().judgement};
  for (const TensorJudgement* t : view.evidence().affected) {
    if (t != view.evidence().judgement) witnesses.push_back(t);
  }
  int tried = 0;
  for (const TensorJudgement* t : witnesses) {
    const TensorPieces* reference = view.evidence().find_reference(t->id);
    const TensorPieces* candidate = view.evidence().find_candidate(t->id);
    if (reference == nullptr || candidate == nullptr) continue;
    const Shape shape = reference->global_shape();
    const auto leg = std::find_if(
        t->legs.begin(), t->legs.end(),
        [&](const LegJudgement& l) { return l.leg == view.leg().leg; });
    if (shape.empty() || shape.size() > 2 || leg == t->legs.end()) continue;
    const auto linear = FindGradient(view, t->id, shape);
    if (!linear) continue;
    if (++tried > kMostWitnesses) break;
    const auto terms = MakeTerms(*linear, shape);
    if (!terms.ok()) continue;
    const auto expected = ReadSample(*reference, terms->boxes);
    const auto held = ReadSample(*candidate, terms->boxes);
    if (!expected.ok() || !held.ok()) continue;
    const double noise = std::fmax(leg->bound, kStatisticsResolve);
    const auto plain = Decompose(terms->values, *expected, noise);
    const auto fit = Decompose(terms->values, *held, noise);
    if (!plain || !fit || !(plain->residual <= kSlack * noise) ||
        !(fit->residual <= kSlack * noise)) {
      continue;
    }
    double unit = 0;
    for (const double weight : plain->weights) unit += weight;
    unit /= static_cast<double>(plain->weights.size());
    bool sum = unit > 0;
    for (size_t i = 0; i < plain->weights.size(); ++i) {
      sum = sum && std::fabs(plain->weights[i] - unit) <=
                       std::fmax(kWholeWithin * unit, plain->uncertainty[i]);
    }
    if (!sum) continue;
    return ByWeights(t->id, view, *linear, *terms, *fit, unit);
  }
  return std::nullopt;
}

}  // namespace ttrace
