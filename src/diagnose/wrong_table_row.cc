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
#include <vector>

#include "src/diagnose/diagnose.h"

namespace ttrace {
namespace {

constexpr int64_t kSamples = 8;        // wrong rows looked at
constexpr int64_t kChunk = 1 << 20;    // table elements in memory at a time
constexpr int kOldestTable = 1000;     // iterations back
constexpr int64_t kMaxScan = 1 << 24;  // output elements looked through

struct WrongRow {
  int64_t position = 0;  // row of the flattened output
  std::vector<double> error;
  std::vector<double> value;
  int64_t added = -1;     // table row that equals the error
  int64_t replaced = -1;  // table row that equals the value
};

bool Equals(const double* a, const std::vector<double>& b, double tolerance) {
  double diff = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    diff += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm > 0 && diff <= tolerance * tolerance * norm;
}

// The first few rows of the output whose error is far beyond noise.
std::vector<WrongRow> FindWrongRows(const std::vector<double>& reference,
                                    const std::vector<double>& candidate,
                                    size_t width, int64_t* total) {
  std::vector<WrongRow> rows;
  *total = 0;
  for (size_t at = 0; at + width <= reference.size(); at += width) {
    double diff = 0;
    double norm = 0;
    for (size_t i = 0; i < width; ++i) {
      const double d = candidate[at + i] - reference[at + i];
      diff += d * d;
      norm += reference[at + i] * reference[at + i];
    }
    if (!(diff > 0.01 * norm)) continue;
    ++*total;
    if (static_cast<int64_t>(rows.size()) >= kSamples) continue;
    WrongRow row;
    row.position = static_cast<int64_t>(at / width);
    for (size_t i = 0; i < width; ++i) {
      row.error.push_back(candidate[at + i] - reference[at + i]);
      row.value.push_back(candidate[at + i]);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::optional<Diagnosis> WrongTableRow(const Evidence& evidence) {
  const TensorId& id = evidence.judgement->id;
  if (id.role != Role::kOutput || evidence.leg == nullptr ||
      evidence.reference == nullptr || evidence.candidate == nullptr) {
    return std::nullopt;
  }
  const TensorPieces* table = nullptr;
  const int oldest = std::max(0, id.iteration - kOldestTable);
  for (int iteration = id.iteration; iteration >= oldest && !table;
       --iteration) {
    table = evidence.find_reference(
        TensorId{id.fqn + ".weight", Role::kParam, iteration, 0, ""});
  }
  if (table == nullptr) return std::nullopt;
  const Shape table_shape = table->global_shape();
  const Shape out_shape = evidence.reference->global_shape();
  if (!table->MayBeWhole() || !evidence.reference->MayBeWhole() ||
      table_shape.size() != 2 || out_shape.size() < 2 ||
      out_shape.back() != table_shape[1] || table_shape[1] < 8) {
    return std::nullopt;
  }
  const auto width = static_cast<size_t>(table_shape[1]);
  Shape size = out_shape;
  int64_t elements = 1;
  for (const int64_t n : size) elements *= n;
  if (elements > kMaxScan) {
    size[0] = std::max<int64_t>(1, size[0] * kMaxScan / elements);
  }
  const Shape origin(size.size(), 0);
  const auto reference = ReadBox(*evidence.reference, origin, size);
  const auto candidate = ReadBox(*evidence.candidate, origin, size);
  if (!reference.ok() || !candidate.ok()) return std::nullopt;

  int64_t wrong = 0;
  std::vector<WrongRow> rows =
      FindWrongRows(*reference, *candidate, width, &wrong);
  if (rows.size() < 2) return std::nullopt;

  // The table may be of another precision than the values looked up from it.
  const double tolerance = std::max(1e-3, 2 * evidence.leg->bound);
  const int64_t step =
      std::max<int64_t>(1, kChunk / static_cast<int64_t>(width));
  for (int64_t begin = 0; begin < table_shape[0]; begin += step) {
    const int64_t count = std::min(step, table_shape[0] - begin);
    const auto chunk = ReadBox(*table, {begin, 0}, {count, table_shape[1]});
    if (!chunk.ok()) return std::nullopt;
    for (int64_t r = 0; r < count; ++r) {
      const double* row = chunk->data() + static_cast<size_t>(r) * width;
      for (WrongRow& w : rows) {
        if (w.added < 0 && Equals(row, w.error, tolerance)) {
          w.added = begin + r;
        }
        if (w.replaced < 0 && Equals(row, w.value, tolerance)) {
          w.replaced = begin + r;
        }
      }
    }
  }
  const auto explained = [&](int64_t WrongRow::*which) {
    return std::count_if(rows.begin(), rows.end(),
                         [&](const WrongRow& w) { return w.*which >= 0; });
  };
  const auto added = explained(&WrongRow::added);
  const auto replaced = explained(&WrongRow::replaced);
  const auto n = static_cast<std::ptrdiff_t>(rows.size());
  if (added != n && replaced != n) return std::nullopt;
  const bool is_added = added == n;
  const WrongRow& first = rows.front();
  Diagnosis out{BugClass::kWrongSlice, "", static_cast<double>(wrong)};
  out.evidence = fmt::format(
      "{} output rows are wrong, and in all {} looked at {} equals a row of "
      "{}.weight that does not belong there (output row {}: table row {}): "
      "another rank's or position's row is {}",
      wrong, n, is_added ? "candidate minus reference" : "the candidate",
      id.fqn, first.position, is_added ? first.added : first.replaced,
      is_added ? "added instead of masked out" : "taken instead");
  return out;
}

}  // namespace ttrace
