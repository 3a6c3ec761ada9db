// W by runs: gradients and weights live in flat buffers, and one that is read
// or written at a wrong offset holds runs of other parameters.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/sample.h"
#include "src/diagnose/diagnose.h"

namespace ttrace {
namespace {

// Consecutive elements that are looked for. A random run agrees within 1/4 with
// a probability of about 4^-16.
constexpr int64_t kRun = 16;
constexpr size_t kRuns = 5;      // places of the candidate's piece
constexpr size_t kMostRuns = 3;  // that must be found elsewhere
constexpr double kSlack = 4;     // as in slices.h
constexpr double kWidest = 0.25;
constexpr int64_t kSearched = 1 << 26;  // elements of the reference
constexpr int64_t kAtOnce = 1 << 20;

bool IsInFlatBuffer(Role role) {
  return role == Role::kGradReduced || role == Role::kGradLocal ||
         role == Role::kParam || role == Role::kParamUpdated;
}

double SquaredNorm(const double* values) {
  double sum = 0;
  for (int64_t i = 0; i < kRun; ++i) sum += values[i] * values[i];
  return sum;
}

double SquaredDistance(const double* a, const double* b) {
  double sum = 0;
  for (int64_t i = 0; i < kRun; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

std::string PlaceText(const Shape& place) {
  return fmt::format("[{}]", fmt::join(place, ", "));
}

// A wrong run of the candidate, and where the reference has it.
struct Run {
  Shape at;
  std::vector<double> values;
  double limit = 0;  // squared distance within which it equals another
  std::string found_in;
  Shape found_at;
};

// Runs spread over what one rank holds that are not the reference's own.
std::vector<Run> WrongRuns(const Evidence& evidence, int rank) {
  std::vector<Run> out;
  std::optional<Record> piece;
  for (const Record& record : evidence.candidate->pieces) {
    if (record.rank() == rank) piece = record;
  }
  if (!piece || piece->layout().dims.empty()) return out;
  const RankPieces own(*evidence.candidate, rank);
  const auto& last = piece->layout().dims.back().segments;
  Shape size(piece->layout().dims.size(), 1);
  size.back() = kRun;
  const double bound = kSlack * evidence.leg->bound;
  for (size_t i = 0; i < kRuns; ++i) {
    const auto share = [&](int64_t n) {
      return n * static_cast<int64_t>(i) / static_cast<int64_t>(kRuns - 1);
    };
    Run run;
    for (const DimLayout& dim : piece->layout().dims) {
      if (dim.segments.empty()) return out;
      const Segment& segment = dim.segments.front();
      run.at.push_back(segment.begin + share(segment.size - 1));
    }
    if (last.front().size < kRun) return out;
    run.at.back() = last.front().begin + share(last.front().size - kRun);
    auto values = ReadBox(own.pieces(), run.at, size);
    const auto right = ReadBox(*evidence.reference, run.at, size);
    if (!values.ok() || !right.ok()) return {};
    const double norm = SquaredNorm(values->data());
    run.limit = bound * bound * norm;
    const bool wrong =
        SquaredDistance(values->data(), right->data()) >
        16 * std::fmax(run.limit, bound * bound * SquaredNorm(right->data()));
    if (!wrong || !(norm > 0)) continue;
    run.values = *std::move(values);
    out.push_back(std::move(run));
  }
  return out;
}

// Looks for all runs in one tensor of the reference.
void Search(const TensorId& id, const TensorPieces& tensor,
            std::vector<Run>* runs) {
  const Shape shape = tensor.global_shape();
  int64_t row = 1;  // elements of one index of the first dimension
  for (size_t d = 1; d < shape.size(); ++d) row *= shape[d];
  const int64_t step =
      std::max<int64_t>(1, kAtOnce / std::max<int64_t>(1, row));
  for (int64_t from = 0; from < shape[0]; from += step) {
    Shape begin(shape.size(), 0);
    Shape size = shape;
    begin[0] = from;
    size[0] = std::min(step, shape[0] - from);
    const auto values = ReadBox(tensor, begin, size);
    if (!values.ok()) return;
    const auto count = static_cast<int64_t>(values->size());
    // Rows lie behind each other, in the flat buffer too.
    for (int64_t i = 0; i + kRun <= count; ++i) {
      const double* here = values->data() + i;
      for (Run& run : *runs) {
        const double first = here[0] - run.values[0];
        if (!run.found_at.empty() || first * first > run.limit ||
            SquaredDistance(here, run.values.data()) > run.limit) {
          continue;
        }
        run.found_in = id.fqn;
        run.found_at = PlaceInSample({{begin, size}}, static_cast<size_t>(i));
      }
    }
  }
}

}  // namespace

std::optional<Diagnosis> FlatOffset(const Evidence& evidence) {
  const TensorId& own = evidence.judgement->id;
  if (evidence.leg == nullptr || evidence.reference == nullptr ||
      evidence.candidate == nullptr || !evidence.visit_reference ||
      !IsInFlatBuffer(own.role) || kSlack * evidence.leg->bound > kWidest ||
      evidence.instances.empty()) {
    return std::nullopt;
  }
  const auto worst =
      std::max_element(evidence.instances.begin(), evidence.instances.end(),
                       [](const InstanceStats& a, const InstanceStats& b) {
                         return a.stats.sum_sq_err < b.stats.sum_sq_err;
                       });
  std::vector<Run> runs = WrongRuns(evidence, worst->ranks.front());
  if (runs.size() < kMostRuns) return std::nullopt;
  int64_t searched = 0;
  evidence.visit_reference([&](const TensorId& id, const TensorPieces& other) {
    const Shape shape = other.global_shape();
    if (id.role != own.role || id.iteration != own.iteration || shape.empty() ||
        !other.MayBeWhole()) {
      return;
    }
    if ((searched += other.pieces.front().layout().global_count()) <= kSearched)
      Search(id, other, &runs);
  });
  std::vector<const Run*> found;
  for (const Run& run : runs) {
    if (!run.found_at.empty()) found.push_back(&run);
  }
  if (found.size() < kMostRuns) return std::nullopt;
  const Run& first = *found.front();
  return Diagnosis{
      BugClass::kWrongSlice,
      fmt::format("{} of {} runs of {} elements that were looked for are the "
                  "reference's elsewhere (from {} on it holds {} of {} from {} "
                  "on): the right values at a wrong place of a flat buffer",
                  found.size(), runs.size(), kRun, PlaceText(first.at),
                  ToString(own.role), first.found_in,
                  PlaceText(first.found_at)),
      static_cast<double>(found.size())};
}

}  // namespace ttrace
