// X, W: rows of an expert are wrong and hold the values of other rows that a
// router sent to its experts, of other tokens or of other experts.
//
// A dispatcher sorts rows by expert and by rank and puts them back. If it sorts
// wrongly, a row's values may lie with any expert: so the rows of all experts
// of the router are one table, and each wrong row of the candidate is looked
// for in the reference's.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/explained.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/slices.h"

namespace ttrace {
namespace {

struct RowName {
  int expert = 0;
  int64_t token = 0;
};

struct RowTable {
  std::vector<RowName> names;
  int64_t width = 0;
  std::vector<double> reference;
  std::vector<double> candidate;
};

// Same values of another expert of the same router.
bool Sibling(const TensorId& id, const TensorPieces& pieces,
             const TensorId& own, const RoutedRows& routed) {
  const Record& first = pieces.pieces.front();
  return id.role == own.role && id.arg == own.arg && id.pass == own.pass &&
         id.iteration == own.iteration && id.call == own.call &&
         first.routed() && first.routed()->by == routed.by &&
         pieces.unplaced == nullptr;
}

// A few elements of each row: the first ones of the last dimension.
void ChooseWidth(const Shape& shape, int64_t rows, SampledBox* box,
                 int64_t* width) {
  int64_t budget = std::min(kWidestSlice, kInMemory / rows);
  box->begin = Shape(shape.size(), 0);
  box->size = shape;
  *width = 1;
  for (size_t d = shape.size(); d-- > 1;) {
    box->size[d] = std::clamp<int64_t>(budget, 1, shape[d]);
    *width *= box->size[d];
    budget /= box->size[d];
  }
}

// The rows that both sides hold, of every expert.
RowTable Gather(const ValueView& view, const RoutedRows& routed) {
  const TensorId& own = view.id();
  struct Expert {
    int number;
    const TensorPieces* reference;
    const TensorPieces* candidate;
  };
  std::vector<Expert> experts;
  const Shape shape = view.reference().global_shape();
  view.evidence().visit_reference([&](const TensorId& id,
                                      const TensorPieces& pieces) {
    if (!Sibling(id, pieces, own, routed)) return;
    const TensorPieces* candidate = view.evidence().find_candidate(id);
    if (candidate == nullptr || !Sibling(id, *candidate, own, routed) ||
        pieces.global_shape() != shape || candidate->global_shape() != shape ||
        pieces.pieces.front().routed()->expert !=
            candidate->pieces.front().routed()->expert) {
      return;
    }
    experts.push_back(
        {pieces.pieces.front().routed()->expert, &pieces, candidate});
  });
  RowTable out;
  const auto rows = static_cast<int64_t>(experts.size()) * shape[0];
  if (rows == 0 || rows > kMostRoutedRows) return out;
  SampledBox box;
  ChooseWidth(shape, rows, &box, &out.width);
  for (const Expert& expert : experts) {
    const auto reference = ReadBox(*expert.reference, box.begin, box.size);
    const auto candidate = ReadBox(*expert.candidate, box.begin, box.size,
                                   view.evidence().compare);
    if (!reference.ok() || !candidate.ok()) return {};
    for (int64_t token = 0; token < shape[0]; ++token) {
      const auto at = [&](const std::vector<double>& values) {
        return std::span(values).subspan(static_cast<size_t>(token * out.width),
                                         static_cast<size_t>(out.width));
      };
      const auto held = [](std::span<const double> row) {
        return std::all_of(row.begin(), row.end(),
                           [](double value) { return std::isfinite(value); });
      };
      const auto mine = at(*reference);
      const auto theirs = at(*candidate);
      // A token of other experts is NaN.
      if (!held(mine) || !held(theirs)) continue;
      out.names.push_back({expert.number, token});
      out.reference.insert(out.reference.end(), mine.begin(), mine.end());
      out.candidate.insert(out.candidate.end(), theirs.begin(), theirs.end());
    }
  }
  return out;
}

std::string RowWords(const RowTable& table, const SliceMatch& match) {
  std::string moved;
  int said = 0;
  for (size_t i = 0; i < match.wrong.size() && said < 2; ++i) {
    if (match.source[i] < 0) continue;
    const RowName& to = table.names[static_cast<size_t>(match.wrong[i])];
    const RowName& from = table.names[static_cast<size_t>(match.source[i])];
    moved +=
        fmt::format("{}expert {}'s row of token {} holds that of token {}",
                    said++ == 0 ? "" : ", ", to.expert, to.token, from.token);
    if (from.expert != to.expert) {
      moved += fmt::format(" of expert {}", from.expert);
    }
  }
  return moved + (match.matched > said ? ", ..." : "");
}

}  // namespace

std::optional<Diagnosis> MovedRows(const ValueView& view) {
  if (view.reference().unplaced != nullptr ||
      !view.candidate().pieces.front().routed()) {
    return std::nullopt;
  }
  const RoutedRows& routed = *view.candidate().pieces.front().routed();
  const RowTable table = Gather(view, routed);
  const auto rows = static_cast<int64_t>(table.names.size());
  if (rows < 2) return std::nullopt;
  const SliceMatch match = MatchSlices(table.reference, table.candidate, rows,
                                       table.width, view.bound());
  if (!IsEnough(match.explained())) return std::nullopt;
  Diagnosis out{
      match.bijection ? BugClass::kPermutation : BugClass::kWrongSlice, "",
      static_cast<double>(match.matched)};
  out.evidence = fmt::format(
      "{} of {} rows that {} sent to experts are wrong, and {} of these equal "
      "other ones of the reference within the bound: {}; {}",
      match.wrong.size(), rows, routed.by, match.matched,
      RowWords(table, match),
      match.bijection ? "one to one: the right values in the wrong places"
                      : "some are there twice and others not at all");
  return out;
}

}  // namespace ttrace
