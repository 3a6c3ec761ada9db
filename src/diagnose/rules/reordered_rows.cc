// X: within each row the values are the reference's in another order, as of
// probabilities that were given to the wrong experts of their token. One order
// for all rows is a permutation of slices (moved_slices.cc); here each row has
// its own.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "src/diagnose/explained.h"
#include "src/diagnose/row_pairs.h"
#include "src/diagnose/rules/rules.h"

namespace ttrace {
namespace {

// Bits of evidence that `row` is a reordering; nothing if it is none.
//
// A stranger lies within the limit of one of w values that are spread over a
// range with a probability of at most 2 x limit x w / range. Where all wrong
// elements but one do, the last may follow from a sum that is fixed.
std::optional<double> BitsOfOrder(const RowPairs& rows, size_t row) {
  const auto theirs = rows.candidate(row);
  const auto own = rows.reference(row);
  std::vector<double> reference(own.begin(), own.end());
  std::vector<double> candidate(theirs.begin(), theirs.end());
  int wrong = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    if (std::fabs(theirs[i] - own[i]) > rows.limit()) ++wrong;
  }
  std::sort(reference.begin(), reference.end());
  std::sort(candidate.begin(), candidate.end());
  for (size_t i = 0; i < reference.size(); ++i) {
    if (std::fabs(candidate[i] - reference[i]) > rows.limit()) {
      return std::nullopt;
    }
  }
  const double chance = 2 * rows.limit() * static_cast<double>(rows.width()) /
                        (reference.back() - reference.front());
  return (wrong - 1) * std::fmax(0, -std::log2(chance));
}

std::string Example(const RowPairs& rows, size_t row) {
  const auto reference = rows.reference(row);
  const auto candidate = rows.candidate(row);
  const auto largest = std::max_element(reference.begin(), reference.end());
  const auto there = std::max_element(candidate.begin(), candidate.end());
  return fmt::format(
      "of the first of these the largest value, {:.4g}, is at {} and belongs "
      "at {}",
      *largest, there - candidate.begin(), largest - reference.begin());
}

}  // namespace

std::optional<Diagnosis> ReorderedWithinRows(const ValueView& view) {
  const RowPairs* rows = view.rows();
  // Where an element of a sample has gone may not be in it.
  if (rows == nullptr || rows->sampled() > 0) return std::nullopt;
  std::optional<size_t> first;
  const Explained reordered = rows->ExplainedBy([&](size_t row) {
    const auto bits = BitsOfOrder(*rows, row);
    if (bits && !first) first = row;
    return bits;
  });
  if (!IsEnough(reordered)) return std::nullopt;
  return Diagnosis{
      BugClass::kPermutation,
      fmt::format("{} of {} rows (along the last dimension) are wrong, and in "
                  "{} of these the values are the reference's of the same row "
                  "in another order, within the bound: {}",
                  reordered.wrong, rows->rows(), reordered.explained,
                  Example(*rows, *first)),
      reordered.explained};
}

}  // namespace ttrace
