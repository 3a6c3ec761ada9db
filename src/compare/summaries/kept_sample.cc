#include "src/compare/summaries/kept_sample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "src/compare/instances.h"
#include "src/compare/recorded_layout.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/numeric/widen.h"

namespace ttrace {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Error NotKept(const TensorPieces& pieces) {
  return Error(ErrorCode::kIncomparable,
               DescribeTensor(pieces) +
                   ": its values were not kept, nor a sample of these places");
}

// The grid, if these boxes are its places in their order.
std::optional<SampleGrid> GridOf(const std::vector<SampledBox>& boxes,
                                 const Shape& shape) {
  SampleGrid grid(shape);
  if (grid.count() != static_cast<int64_t>(boxes.size())) return std::nullopt;
  for (int64_t i = 0; i < grid.count(); ++i) {
    const SampledBox& box = boxes[static_cast<size_t>(i)];
    if (box.begin != grid.at(i) || box.size != Shape(shape.size(), 1)) {
      return std::nullopt;
    }
  }
  return grid;
}

// What a piece holds of the grid's places, by number.
Result<std::map<int64_t, double>> ValuesOf(const Trace& trace,
                                           const Record& record,
                                           const SampleGrid& grid,
                                           const TensorPieces& pieces) {
  const Layout& layout = record.layout();
  const std::vector<int64_t> strides = RowMajorStrides(layout.local_shape());
  const std::vector<SampleGrid::Held> wanted = grid.HeldBy(layout, strides);
  const auto itemsize = static_cast<size_t>(Info(record.dtype()).itemsize);
  std::map<int64_t, double> out;
  if (trace.GivesValues(record)) {
    std::vector<std::byte> value(itemsize);
    for (const SampleGrid::Held& held : wanted) {
      TTRACE_RETURN_IF_ERROR(trace.Read(
          record, held.local * static_cast<int64_t>(itemsize), value));
      out[held.place] = WidenElement(record.dtype(), value.data());
    }
    return out;
  }
  TTRACE_ASSIGN_OR_RETURN(const TensorSummary summary,
                          ReadSummary(trace, record));
  if (!summary.sample) return NotKept(pieces);
  size_t i = 0;
  for (const SampleGrid::Held& held : wanted) {
    out[held.place] = WidenElement(
        record.dtype(), summary.sample->values.data() + i++ * itemsize);
  }
  return out;
}

}  // namespace

bool GivesValues(const TensorPieces& pieces) {
  return std::all_of(
      pieces.pieces.begin(), pieces.pieces.end(),
      [&](const Record& record) { return pieces.trace->GivesValues(record); });
}

Result<bool> HasSamples(std::initializer_list<const TensorPieces*> tensors) {
  for (const TensorPieces* pieces : tensors) {
    for (const Record& record : pieces->pieces) {
      if (pieces->trace->GivesValues(record)) continue;
      TTRACE_ASSIGN_OR_RETURN(const TensorSummary summary,
                              ReadSummary(*pieces->trace, record));
      if (!summary.sample) return false;
    }
  }
  return true;
}

Result<std::vector<SampledBox>> PlanKept(
    const Shape& shape, int64_t max_elements,
    std::initializer_list<const TensorPieces*> tensors) {
  if (std::all_of(tensors.begin(), tensors.end(),
                  [](const TensorPieces* t) { return GivesValues(*t); })) {
    return PlanSample(shape, max_elements);
  }
  TTRACE_ASSIGN_OR_RETURN(const bool sampled, HasSamples(tensors));
  if (!sampled) return NotKept(**tensors.begin());
  const SampleGrid grid(shape);
  std::vector<SampledBox> out;
  for (int64_t i = 0; i < grid.count(); ++i) {
    out.push_back({grid.at(i), Shape(shape.size(), 1)});
  }
  return out;
}

Result<std::vector<double>> ReadKept(const TensorPieces& pieces,
                                     const std::vector<SampledBox>& boxes,
                                     const CompareOptions& options) {
  const std::optional<SampleGrid> grid = GridOf(boxes, pieces.global_shape());
  if (GivesValues(pieces) && (!grid || options.rows != nullptr)) {
    return ReadSample(pieces, boxes, options);
  }
  if (!grid) return NotKept(pieces);
  TTRACE_ASSIGN_OR_RETURN(const std::vector<InstanceGroup> groups,
                          GroupInstances(pieces, options));
  std::vector<double> out(boxes.size(), kNaN);
  for (const InstanceGroup& group : groups) {
    std::map<int64_t, double> sum;
    for (const Term& term : group.instances.front().terms) {
      const bool there =
          term.record.layout() == group.layout &&
          (pieces.trace->GivesValues(term.record) ||
           RecordedLayout(*pieces.trace, term.record) == group.layout);
      if (!there) return NotKept(pieces);
      TTRACE_ASSIGN_OR_RETURN(
          const auto values,
          ValuesOf(*pieces.trace, term.record, *grid, pieces));
      for (const auto& [place, value] : values) {
        sum[place] += term.weight * value;
      }
    }
    for (const auto& [place, value] : sum) {
      out[static_cast<size_t>(place)] = value;
    }
  }
  return out;
}

Result<SampledPair> SamplePair(const TensorPieces& reference,
                               const TensorPieces& candidate,
                               int64_t max_elements,
                               const CompareOptions& options) {
  SampledPair out;
  const Shape shape = reference.global_shape();
  if (shape != candidate.global_shape()) {
    return Error(ErrorCode::kIncomparable, "the two sides differ in shape");
  }
  out.of_summaries = !GivesValues(reference) || !GivesValues(candidate);
  TTRACE_ASSIGN_OR_RETURN(
      out.boxes, PlanKept(shape, max_elements, {&reference, &candidate}));
  if (out.of_summaries) out.indices = SampleGrid(shape).indices();
  TTRACE_ASSIGN_OR_RETURN(out.reference, ReadKept(reference, out.boxes));
  TTRACE_ASSIGN_OR_RETURN(out.candidate,
                          ReadKept(candidate, out.boxes, options));
  return out;
}

std::vector<size_t> WrongElements(const SampledPair& pair, double bound) {
  double square = 0;
  double finite = 0;
  for (const double value : pair.reference) {
    if (!std::isfinite(value)) continue;
    square += value * value;
    ++finite;
  }
  std::vector<size_t> out;
  if (finite == 0) return out;
  const double limit = 4 * bound * std::sqrt(square / finite);
  for (size_t i = 0; i < pair.reference.size(); ++i) {
    if (std::fabs(pair.candidate[i] - pair.reference[i]) > limit) {
      out.push_back(i);
    }
  }
  return out;
}

}  // namespace ttrace
