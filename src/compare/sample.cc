#include "src/compare/sample.h"

#include <algorithm>
#include <variant>

namespace ttrace {
namespace {

// Enough places along a dimension that a fault in one part of it is met.
constexpr int64_t kRuns = 16;

void PlanInto(const Shape& shape, size_t dim, int64_t budget, SampledBox box,
              std::vector<SampledBox>* out) {
  if (dim == shape.size()) {
    out->push_back(std::move(box));
    return;
  }
  int64_t inner = 1;
  for (size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const int64_t runs = std::min(kRuns, shape[dim]);
  if (shape[dim] <= budget / std::max<int64_t>(1, inner)) {
    for (size_t d = dim; d < shape.size(); ++d) box.size[d] = shape[d];
    out->push_back(std::move(box));
  } else if (runs <= budget / inner) {
    const int64_t length = std::min(shape[dim] / runs, budget / inner / runs);
    for (int64_t run = 0; run < runs; ++run) {
      SampledBox part = box;
      part.begin[dim] = run * (shape[dim] / runs);
      part.size[dim] = length;
      for (size_t d = dim + 1; d < shape.size(); ++d) part.size[d] = shape[d];
      out->push_back(std::move(part));
    }
  } else {
    const int64_t taken = std::max<int64_t>(1, std::min(runs, budget));
    for (int64_t run = 0; run < taken; ++run) {
      SampledBox part = box;
      part.begin[dim] = run * (shape[dim] / taken);
      PlanInto(shape, dim + 1, std::max<int64_t>(1, budget / taken), part, out);
    }
  }
}

}  // namespace

std::vector<SampledBox> PlanSample(const Shape& shape, int64_t max_elements) {
  std::vector<SampledBox> out;
  for (const int64_t n : shape) {
    if (n == 0) return out;
  }
  PlanInto(shape, 0, std::max<int64_t>(1, max_elements),
           {Shape(shape.size(), 0), Shape(shape.size(), 1)}, &out);
  return out;
}

Result<std::vector<double>> ReadSample(const TensorPieces& pieces,
                                       const std::vector<SampledBox>& boxes,
                                       const CompareOptions& options) {
  std::vector<double> out;
  for (const SampledBox& box : boxes) {
    TTRACE_ASSIGN_OR_RETURN(const std::vector<double> values,
                            ReadBox(pieces, box.begin, box.size, options));
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

Shape PlaceInSample(const std::vector<SampledBox>& boxes, size_t index) {
  auto rest = static_cast<int64_t>(index);
  for (const SampledBox& box : boxes) {
    int64_t count = 1;
    for (const int64_t n : box.size) count *= n;
    if (rest >= count) {
      rest -= count;
      continue;
    }
    Shape at = box.begin;
    for (size_t d = at.size(); d-- > 0;) {
      at[d] += rest % box.size[d];
      rest /= box.size[d];
    }
    return at;
  }
  return {};
}

RankPieces::RankPieces(const TensorPieces& all, int rank) {
  pieces_ = all;
  pieces_.pieces.clear();
  for (const Record& record : all.pieces) {
    if (record.rank() != rank) continue;
    RecordFields copy = record.fields();
    std::erase_if(copy.placements, [](const auto& placed) {
      return std::holds_alternative<Partial>(placed.second);
    });
    pieces_.pieces.push_back(records_.Append(copy));
  }
}

TensorPieces OfMicroBatch(const TensorPieces& all, int micro_batch) {
  TensorPieces out = all;
  out.pieces.EraseIf([&](const Record& record) {
    return record.micro_batch() != micro_batch;
  });
  return out;
}

}  // namespace ttrace
