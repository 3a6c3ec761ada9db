#include "src/diagnose/row_pairs.h"

#include <algorithm>
#include <cmath>

#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/value_view.h"

namespace ttrace {
namespace {

// Whole rows around a place, the last dimensions first.
SampledBox RowsAround(const Shape& shape, const Shape& place) {
  SampledBox box{place, Shape(shape.size(), 1)};
  box.begin.back() = 0;
  box.size.back() = shape.back();
  int64_t budget = kSampledElements / shape.back();
  for (size_t d = shape.size() - 1; d-- > 0;) {
    const int64_t size = std::clamp<int64_t>(budget, 1, shape[d]);
    box.size[d] = size;
    box.begin[d] = std::clamp<int64_t>(place[d] - size / 2, 0, shape[d] - size);
    budget /= size;
  }
  return box;
}

}  // namespace

std::optional<RowPairs> RowPairs::Of(const ValueView& view) {
  const Shape shape = view.reference().global_shape();
  if (shape.size() < 2 || shape.back() < 2 || shape.back() > kLongestRow) {
    return std::nullopt;
  }
  const Suspect* suspect = view.suspect();
  if (suspect == nullptr) return std::nullopt;
  RowPairs out;
  Result<std::vector<double>> reference = std::vector<double>();
  Result<std::vector<double>> candidate = std::vector<double>();
  if (GivesValues(view.reference()) && GivesValues(suspect->pieces)) {
    const SampledBox box = RowsAround(shape, suspect->place);
    reference = ReadBox(view.reference(), box.begin, box.size);
    candidate =
        ReadBox(suspect->pieces, box.begin, box.size, view.evidence().compare);
    out.width_ = shape.back();
  } else {
    const SampledPair& pair = suspect->pair;
    if (pair.indices.back().size() < 2) return std::nullopt;
    out.sampled_ = pair.boxes.size();
    out.width_ = static_cast<int64_t>(pair.indices.back().size());
    reference = pair.reference;
    candidate = pair.candidate;
  }
  if (!reference.ok() || !candidate.ok()) return std::nullopt;

  const auto width = static_cast<size_t>(out.width_);
  double squares = 0;
  for (size_t row = 0; row < reference->size(); row += width) {
    bool finite = true;  // what nobody holds is NaN
    for (size_t i = row; i < row + width && finite; ++i) {
      finite = std::isfinite((*reference)[i]) && std::isfinite((*candidate)[i]);
    }
    if (!finite) continue;
    for (size_t i = row; i < row + width; ++i) {
      out.reference_.push_back((*reference)[i]);
      out.candidate_.push_back((*candidate)[i]);
      squares += (*reference)[i] * (*reference)[i];
    }
  }
  if (out.reference_.empty()) return std::nullopt;
  out.limit_ = kSlack * view.bound() *
               std::sqrt(squares / static_cast<double>(out.reference_.size()));
  for (size_t row = 0; row < out.reference_.size(); row += width) {
    bool right = true;
    for (size_t i = row; i < row + width && right; ++i) {
      right = std::fabs(out.candidate_[i] - out.reference_[i]) <= out.limit_;
    }
    out.right_.push_back(right);
  }
  return out;
}

}  // namespace ttrace
