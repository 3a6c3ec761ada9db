// W by runs: gradients and weights live in flat buffers, and one that is read
// or written at a wrong offset holds runs of other parameters.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/vectors.h"

namespace ttrace {
namespace {

bool IsInFlatBuffer(Role role) {
  return role == Role::kGradReduced || role == Role::kGradLocal ||
         role == Role::kParam || role == Role::kParamUpdated;
}

std::string PlaceText(const Shape& place) {
  return fmt::format("[{}]", fmt::join(place, ", "));
}

// A wrong run of the candidate, and where the reference has it.
struct WrongRun {
  Shape at;
  std::vector<double> values;
  double limit = 0;  // squared distance within which it equals another
  std::string found_in;
  Shape found_at;
};

// Runs spread over what one rank holds that are not the reference's own.
std::vector<WrongRun> WrongRuns(const ValueView& view, int rank) {
  std::vector<WrongRun> out;
  std::optional<Record> piece;
  for (const Record& record : view.candidate().pieces) {
    if (record.rank() == rank) piece = record;
  }
  if (!piece || piece->layout().dims.empty()) return out;
  const RankPieces own(view.candidate(), rank);
  const auto& last = piece->layout().dims.back().segments;
  Shape size(piece->layout().dims.size(), 1);
  size.back() = kRunLength;
  const double bound = kSlack * view.bound();
  for (size_t i = 0; i < kRunsLookedFor; ++i) {
    const auto share = [&](int64_t n) {
      return n * static_cast<int64_t>(i) /
             static_cast<int64_t>(kRunsLookedFor - 1);
    };
    WrongRun run;
    for (const DimLayout& dim : piece->layout().dims) {
      if (dim.segments.empty()) return out;
      const Segment& segment = dim.segments.front();
      run.at.push_back(segment.begin + share(segment.size - 1));
    }
    if (last.front().size < kRunLength) return out;
    run.at.back() = last.front().begin + share(last.front().size - kRunLength);
    auto values = ReadBox(own.pieces(), run.at, size);
    const auto right = ReadBox(view.reference(), run.at, size);
    if (!values.ok() || !right.ok()) return {};
    const double norm = SquaredNorm(*values);
    run.limit = bound * bound * norm;
    const bool wrong =
        SquaredDistance(*values, *right) >
        kSeparation * kSeparation *
            std::fmax(run.limit, bound * bound * SquaredNorm(*right));
    if (!wrong || !(norm > 0)) continue;
    run.values = *std::move(values);
    out.push_back(std::move(run));
  }
  return out;
}

// Looks for all runs in one tensor of the reference.
void SearchRuns(const TensorId& id, const TensorPieces& tensor,
                std::vector<WrongRun>* runs) {
  const Shape shape = tensor.global_shape();
  int64_t row = 1;  // elements of one index of the first dimension
  for (size_t d = 1; d < shape.size(); ++d) row *= shape[d];
  const int64_t step =
      std::max<int64_t>(1, kInMemory / std::max<int64_t>(1, row));
  for (int64_t from = 0; from < shape[0]; from += step) {
    Shape begin(shape.size(), 0);
    Shape size = shape;
    begin[0] = from;
    size[0] = std::min(step, shape[0] - from);
    const auto values = ReadBox(tensor, begin, size);
    if (!values.ok()) return;
    const auto count = static_cast<int64_t>(values->size());
    // Rows lie behind each other, in the flat buffer too.
    for (int64_t i = 0; i + kRunLength <= count; ++i) {
      const auto here = std::span(*values).subspan(
          static_cast<size_t>(i), static_cast<size_t>(kRunLength));
      for (WrongRun& run : *runs) {
        const double first = here.front() - run.values.front();
        if (!run.found_at.empty() || first * first > run.limit ||
            SquaredDistance(here, run.values) > run.limit) {
          continue;
        }
        run.found_in = id.fqn;
        run.found_at = PlaceInSample({{begin, size}}, static_cast<size_t>(i));
      }
    }
  }
}

}  // namespace

std::optional<Diagnosis> FlatOffset(const ValueView& view) {
  const TensorId& own = view.id();
  if (!IsInFlatBuffer(own.role) || kSlack * view.bound() > kWidestMatch ||
      view.evidence().instances.empty()) {
    return std::nullopt;
  }
  const auto worst = std::max_element(
      view.evidence().instances.begin(), view.evidence().instances.end(),
      [](const InstanceStats& a, const InstanceStats& b) {
        return a.stats.sum_sq_err < b.stats.sum_sq_err;
      });
  std::vector<WrongRun> runs = WrongRuns(view, worst->ranks.front());
  if (runs.size() < kFewestRuns) return std::nullopt;
  int64_t searched = 0;
  view.evidence().visit_reference(
      [&](const TensorId& id, const TensorPieces& other) {
        const Shape shape = other.global_shape();
        if (id.role != own.role || id.iteration != own.iteration ||
            shape.empty() || !other.MayBeWhole()) {
          return;
        }
        if ((searched += other.pieces.front().layout().global_count()) <=
            kMostSearched)
          SearchRuns(id, other, &runs);
      });
  std::vector<const WrongRun*> found;
  for (const WrongRun& run : runs) {
    if (!run.found_at.empty()) found.push_back(&run);
  }
  if (found.size() < kFewestRuns) return std::nullopt;
  const WrongRun& first = *found.front();
  return Diagnosis{
      BugClass::kWrongSlice,
      fmt::format("{} of {} runs of {} elements that were looked for are the "
                  "reference's elsewhere (from {} on it holds {} of {} from {} "
                  "on): the right values at a wrong place of a flat buffer",
                  found.size(), runs.size(), kRunLength, PlaceText(first.at),
                  ToString(own.role), first.found_in,
                  PlaceText(first.found_at)),
      static_cast<double>(found.size())};
}

}  // namespace ttrace
