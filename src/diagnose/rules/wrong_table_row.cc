// W for lookups: the error of an output row is itself a row of the table.
//
// A lookup (an embedding) sharded over ranks goes wrong by reading a row it
// should not: an index offset that is off, or a row of another rank's range
// that is not masked out. Then candidate - reference, or the candidate itself,
// is exactly some row of the module's own parameter. This is looked for, not
// assumed: a handful of wrong rows against every row of the table.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "src/diagnose/constants.h"
#include "src/diagnose/explained.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/vectors.h"

namespace ttrace {
namespace {

struct WrongOutput {
  int64_t position = 0;  // row of the flattened output
  std::vector<double> error;
  std::vector<double> value;
  int64_t added = -1;     // table row that equals the error
  int64_t replaced = -1;  // table row that equals the value
};

bool EqualsRow(std::span<const double> a, const std::vector<double>& b,
               double tolerance) {
  const double norm = SquaredNorm(b);
  return norm > 0 && SquaredDistance(a, b) <= tolerance * tolerance * norm;
}

// The rows of an output whose error is far beyond noise: how many, and the
// first few of them.
struct WrongOutputs {
  int64_t count = 0;
  std::vector<WrongOutput> first;
};

WrongOutputs FindWrongOutputs(const std::vector<double>& reference,
                              const std::vector<double>& candidate,
                              size_t width) {
  WrongOutputs out;
  for (size_t at = 0; at + width <= reference.size(); at += width) {
    const auto expected = std::span(reference).subspan(at, width);
    const auto made = std::span(candidate).subspan(at, width);
    if (!(SquaredDistance(made, expected) >
          kWrongRow * SquaredNorm(expected))) {
      continue;
    }
    if (++out.count > kTableRows) continue;
    WrongOutput& row = out.first.emplace_back();
    row.position = static_cast<int64_t>(at / width);
    row.value.assign(made.begin(), made.end());
    for (size_t i = 0; i < width; ++i) {
      row.error.push_back(made[i] - expected[i]);
    }
  }
  return out;
}

// The newest table that is known, if the module is a lookup by its shapes.
const TensorPieces* FindTable(const ValueView& view) {
  const TensorId& id = view.id();
  const int oldest = std::max(0, id.iteration - kOldestTable);
  const TensorPieces* table = nullptr;
  for (int iteration = id.iteration; iteration >= oldest && !table;
       --iteration) {
    table = view.evidence().find_reference(
        TensorId{id.fqn + ".weight", Role::kParam, iteration, 0, ""});
  }
  if (table == nullptr || !table->MayBeWhole() ||
      !view.reference().MayBeWhole()) {
    return nullptr;
  }
  const Shape shape = table->global_shape();
  const Shape made = view.reference().global_shape();
  const bool looked_up = shape.size() == 2 && made.size() >= 2 &&
                         made.back() == shape[1] && shape[1] >= kNarrowestTable;
  return looked_up ? table : nullptr;
}

WrongOutputs FindWrongOutputs(const ValueView& view) {
  Shape size = view.reference().global_shape();
  int64_t elements = 1;
  for (const int64_t n : size) elements *= n;
  if (elements > kMostLookedThrough) {
    size[0] = std::max<int64_t>(1, size[0] * kMostLookedThrough / elements);
  }
  const Shape origin(size.size(), 0);
  const auto reference = ReadBox(view.reference(), origin, size);
  const auto candidate =
      ReadBox(view.candidate(), origin, size, view.evidence().compare);
  if (!reference.ok() || !candidate.ok()) return {};
  return FindWrongOutputs(*reference, *candidate,
                          static_cast<size_t>(size.back()));
}

// Looks for what each row holds, and for its error, in the table. False if that
// cannot be read.
bool LookInTable(const TensorPieces& table, double tolerance,
                 std::vector<WrongOutput>* rows) {
  const Shape shape = table.global_shape();
  const auto width = static_cast<size_t>(shape[1]);
  const int64_t step = std::max<int64_t>(1, kInMemory / shape[1]);
  for (int64_t begin = 0; begin < shape[0]; begin += step) {
    const int64_t count = std::min(step, shape[0] - begin);
    const auto chunk = ReadBox(table, {begin, 0}, {count, shape[1]});
    if (!chunk.ok()) return false;
    for (int64_t r = 0; r < count; ++r) {
      const auto row =
          std::span(*chunk).subspan(static_cast<size_t>(r) * width, width);
      for (WrongOutput& w : *rows) {
        if (w.added < 0 && EqualsRow(row, w.error, tolerance)) {
          w.added = begin + r;
        }
        if (w.replaced < 0 && EqualsRow(row, w.value, tolerance)) {
          w.replaced = begin + r;
        }
      }
    }
  }
  return true;
}

}  // namespace

std::optional<Diagnosis> WrongTableRow(const ValueView& view) {
  const TensorId& id = view.id();
  if (id.role != Role::kOutput) return std::nullopt;
  const TensorPieces* table = FindTable(view);
  if (table == nullptr) return std::nullopt;
  WrongOutputs wrong = FindWrongOutputs(view);
  std::vector<WrongOutput>& rows = wrong.first;
  if (rows.size() < 2) return std::nullopt;
  const double tolerance = std::max(kTableWithin, 2 * view.bound());
  if (!LookInTable(*table, tolerance, &rows)) return std::nullopt;

  const auto count = [&](int64_t WrongOutput::*which) {
    return std::count_if(rows.begin(), rows.end(),
                         [&](const WrongOutput& w) { return w.*which >= 0; });
  };
  const auto added = count(&WrongOutput::added);
  const auto replaced = count(&WrongOutput::replaced);
  const bool is_added = added >= replaced;
  Explained found{static_cast<double>(rows.size()),
                  static_cast<double>(std::max(added, replaced))};
  // A stranger may equal any row of the table, itself or its error.
  found.bits =
      found.explained * BitsOfMatch(tolerance, table->global_shape()[1],
                                    2 * table->global_shape()[0]);
  if (!IsEnough(found)) return std::nullopt;
  const WrongOutput& first = rows.front();
  return Diagnosis{
      BugClass::kWrongSlice,
      fmt::format(
          "{} output rows are wrong, and in all {} looked at {} equals a row "
          "of {}.weight that does not belong there (output row {}: table row "
          "{}): another rank's or position's row is {}",
          wrong.count, rows.size(),
          is_added ? "candidate minus reference" : "the candidate", id.fqn,
          first.position, is_added ? first.added : first.replaced,
          is_added ? "added instead of masked out" : "taken instead"),
      static_cast<double>(wrong.count)};
}

}  // namespace ttrace
