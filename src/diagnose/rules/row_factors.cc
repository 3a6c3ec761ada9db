// K: each row is the reference's times a factor of its own, as where a row is
// not divided by its sum. One factor for a rank's part or for a micro-batch is
// asked for before (constant_factor.cc).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>

#include "src/diagnose/explained.h"
#include "src/diagnose/row_pairs.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/scaled_parts.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

struct RowFactor {
  double factor = 1;
  double bits = 0;
};

// The row's factor and how much speaks for there being one; nothing if there is
// none, or if too little of the row is there to tell.
//
// Of n elements that are not zero, an error of size e in a random direction is
// within r of a multiple of the reference with a probability of at most
// (r / e)^(n-1).
std::optional<RowFactor> FactorOf(const RowPairs& rows, size_t row) {
  const auto reference = rows.reference(row);
  const auto candidate = rows.candidate(row);
  double along = 0;
  double square = 0;
  int there = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    along += reference[i] * candidate[i];
    square += reference[i] * reference[i];
    if (std::fabs(reference[i]) > rows.limit()) ++there;
  }
  if (there < 2) return std::nullopt;
  RowFactor out;
  out.factor = along / square;
  // What is zero is missing, not scaled.
  if (out.factor * out.factor * square <= rows.limit() * rows.limit()) {
    return std::nullopt;
  }
  const double limit = rows.limit() * std::fmax(1, std::fabs(out.factor));
  double error = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double rest = candidate[i] - out.factor * reference[i];
    if (std::fabs(rest) > limit) return std::nullopt;
    error += (candidate[i] - reference[i]) * (candidate[i] - reference[i]);
  }
  const double within = limit * std::sqrt(there);
  out.bits = (there - 1) * std::fmax(0, std::log2(std::sqrt(error) / within));
  return out;
}

double Sum(std::span<const double> row) {
  return std::accumulate(row.begin(), row.end(), 0.0);
}

// What the rows of each side add up to, where that is one number for all rows
// of one side and not for the other: a normalisation.
std::string SumWords(const RowPairs& rows) {
  struct Range {
    double least = std::numeric_limits<double>::infinity();
    double most = -std::numeric_limits<double>::infinity();
    void Add(double value) {
      least = std::fmin(least, value);
      most = std::fmax(most, value);
    }
    bool one(double limit) const { return most - least <= 2 * limit; }
  };
  Range reference;
  Range candidate;
  for (size_t row = 0; row < rows.rows(); ++row) {
    reference.Add(Sum(rows.reference(row)));
    candidate.Add(Sum(rows.candidate(row)));
  }
  const double limit = rows.limit() * static_cast<double>(rows.width());
  if (reference.one(limit) == candidate.one(limit)) return "";
  if (reference.one(limit)) {
    return fmt::format(
        "; the reference's rows add up to {:.4g} each, these to {:.4g} to "
        "{:.4g}: they are not divided by their sum",
        reference.most, candidate.least, candidate.most);
  }
  return fmt::format(
      "; these rows add up to {:.4g} each, the reference's to {:.4g} to {:.4g}",
      candidate.most, reference.least, reference.most);
}

}  // namespace

std::optional<Diagnosis> FactorOfEachRow(const ValueView& view) {
  const RowPairs* rows = view.rows();
  if (rows == nullptr || view.factors() != nullptr) return std::nullopt;
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  const Explained scaled =
      rows->ExplainedBy([&](size_t row) -> std::optional<double> {
        const auto found = FactorOf(*rows, row);
        if (!found) return std::nullopt;
        least = std::fmin(least, found->factor);
        most = std::fmax(most, found->factor);
        return found->bits;
      });
  if (!IsEnough(scaled) ||
      // One factor for all that was kept: whether it is for all that was not is
      // asked before (constant_factor.cc).
      (rows->sampled() > 0 && most - least <= 2 * view.bound())) {
    return std::nullopt;
  }
  return Diagnosis{
      BugClass::kConstantFactor,
      fmt::format(
          "{} of {} rows (along the last dimension) are wrong, and {} "
          "of these are the reference's times a factor of their own, "
          "{:.4g} to {:.4g}, within the bound{}",
          scaled.wrong, rows->rows(), scaled.explained, least, most,
          rows->sampled() > 0 ? SampleWords(rows->sampled()) : SumWords(*rows)),
      scaled.explained};
}

}  // namespace ttrace
