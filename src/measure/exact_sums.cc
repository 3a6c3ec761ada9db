#include "src/measure/exact_sums.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "src/compare/compare_tensor.h"
#include "src/experiment/module_names.h"
#include "src/measure/exact_values.h"

namespace ttrace {
namespace {

constexpr int64_t kChunk = int64_t{1} << 18;  // elements in memory at a time

// Calls visit(values of each of `tensors`) for slices along the first
// dimension. REQUIRES: all have the same first dimension.
template <typename Visit>
Status ForEachSlice(const std::vector<const TensorPieces*>& tensors,
                    Visit visit) {
  const int64_t rows = tensors.front()->global_shape().front();
  int64_t widest = 1;
  for (const TensorPieces* tensor : tensors) {
    int64_t width = 1;
    const Shape shape = tensor->global_shape();
    for (size_t d = 1; d < shape.size(); ++d) width *= shape[d];
    widest = std::max(widest, width);
  }
  const int64_t step = std::max<int64_t>(1, kChunk / widest);
  for (int64_t row = 0; row < rows; row += step) {
    std::vector<std::vector<double>> values;
    for (const TensorPieces* tensor : tensors) {
      Shape size = tensor->global_shape();
      Shape begin(size.size(), 0);
      begin[0] = row;
      size[0] = std::min(step, rows - row);
      TTRACE_ASSIGN_OR_RETURN(auto part, ReadBox(*tensor, begin, size));
      values.push_back(std::move(part));
    }
    visit(values);
  }
  return Done{};
}

bool IsWhole(const TensorPieces* tensor) {
  return tensor != nullptr && !tensor->global_shape().empty() &&
         tensor->MayBeWhole();
}

// The dimension that is normalised: the last, or where a module permutes its
// input the only one of that size. -1: not clear.
int NormalisedDim(const Shape& shape, int64_t size) {
  const auto last = static_cast<int>(shape.size()) - 1;
  if (shape.back() == size) return last;
  int found = -1;
  for (int d = 1; d < last; ++d) {
    if (shape[static_cast<size_t>(d)] != size) continue;
    if (found >= 0) return -1;
    found = d;
  }
  return found;
}

}  // namespace

ExactSums::ExactSums(const Side& side) : side_(side) {
  const TokenSums& known = side.facts().token_sums;
  for (const auto& [id, pieces] : side.real()) {
    const bool input = id.role == Role::kInput && id.pass == Pass::kForward;
    if (!input && id.role != Role::kGradOutput) continue;
    if (!known.norms.contains(id.fqn) && !known.tables.contains(id.fqn)) {
      continue;
    }
    Call& call = calls_[{id.iteration, id.fqn}][id.call];
    const TensorPieces*& place = input ? call.input : call.gradient;
    call.ambiguous = call.ambiguous || place != nullptr;
    place = &pieces;
  }
}

Result<std::optional<ErrorStats>> ExactSums::ErrorOf(
    const TensorId& id, const TensorPieces& recorded) const {
  const std::string module = ParentName(id.fqn);
  const std::string name =
      module.empty() ? id.fqn : id.fqn.substr(module.size() + 1);
  const Use use = {id.iteration, module};
  if ((name != "weight" && name != "bias") || !calls_.contains(use)) {
    return std::optional<ErrorStats>();
  }
  // What a shape declares is not given room for.
  if (!recorded.MayBeWhole()) return std::optional<ErrorStats>();
  const Shape shape = recorded.global_shape();
  TTRACE_ASSIGN_OR_RETURN(const Sums* sums, Find(use, shape));
  const Values& exact = name == "weight" ? sums->weight : sums->bias;
  if (exact.empty()) return std::optional<ErrorStats>();
  TTRACE_ASSIGN_OR_RETURN(const Values values,
                          ReadBox(recorded, Shape(shape.size(), 0), shape));
  if (values.size() != exact.size()) return std::optional<ErrorStats>();
  ErrorStats stats;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = values[i] - exact[i];
    if (!std::isfinite(error)) return std::optional<ErrorStats>();
    ++stats.count;
    stats.mismatched += error != 0;
    stats.sum_sq_err += error * error;
    stats.sum_err_ref += error * exact[i];
    stats.sum_sq_ref += exact[i] * exact[i];
    stats.max_abs_err = std::max(stats.max_abs_err, std::fabs(error));
    stats.max_abs_ref = std::max(stats.max_abs_ref, std::fabs(exact[i]));
  }
  return std::optional<ErrorStats>(stats);
}

// `shape` is the parameter's.
Result<const ExactSums::Sums*> ExactSums::Find(const Use& use,
                                               const Shape& shape) const {
  const std::lock_guard lock(mutex_);
  const auto known = found_.find(use);
  if (known != found_.end()) return &known->second;
  const TokenSums& modules = side_.facts().token_sums;
  const auto norm = modules.norms.find(use.second);
  const auto table = modules.tables.find(use.second);
  Sums sums;
  bool whole = true;
  for (const auto& [number, call] : calls_.at(use)) {
    if (call.ambiguous || !IsWhole(call.input) || !IsWhole(call.gradient)) {
      whole = false;
      break;
    }
    Status added = Done{};
    if (norm != modules.norms.end() && shape.size() == 1) {
      added = AddNorm(call, norm->second, shape.front(), &sums);
    } else if (table != modules.tables.end() && shape.size() == 2) {
      added = AddTable(call, table->second, shape, &sums);
    }
    if (!added.ok()) {
      if (added.error().code() == ErrorCode::kCorrupt) return added.error();
      whole = false;
      break;
    }
  }
  if (!whole) sums = {};
  return &found_.emplace(use, std::move(sums)).first->second;
}

Status ExactSums::AddNorm(const Call& call, double eps, int64_t size,
                          Sums* sums) const {
  const Shape shape = call.gradient->global_shape();
  const int dim = NormalisedDim(shape, size);
  if (dim < 0 || call.input->global_shape() != shape) {
    return Error(ErrorCode::kIncomparable, "no norm over one dimension");
  }
  const auto width = static_cast<size_t>(size);
  size_t stride = 1;  // between elements of the normalised dimension
  for (size_t d = static_cast<size_t>(dim) + 1; d < shape.size(); ++d) {
    stride *= static_cast<size_t>(shape[d]);
  }
  sums->weight.resize(width);
  sums->bias.resize(width);
  return ForEachSlice({call.input, call.gradient}, [&](const auto& values) {
    const Values& x = values[0];
    const Values& g = values[1];
    for (size_t begin = 0; begin < x.size(); ++begin) {
      if (begin / stride % width != 0) continue;  // no first element
      double mean = 0;
      for (size_t k = 0; k < width; ++k) mean += x[begin + k * stride];
      mean /= static_cast<double>(width);
      double variance = 0;
      for (size_t k = 0; k < width; ++k) {
        const double apart = x[begin + k * stride] - mean;
        variance += apart * apart;
      }
      variance /= static_cast<double>(width);
      const double scale = 1 / std::sqrt(variance + eps);
      for (size_t k = 0; k < width; ++k) {
        const size_t at = begin + k * stride;
        sums->weight[k] += g[at] * (x[at] - mean) * scale;
        sums->bias[k] += g[at];
      }
    }
  });
}

Status ExactSums::AddTable(const Call& call, int64_t padding,
                           const Shape& shape, Sums* sums) const {
  Shape looked_up = call.input->global_shape();
  looked_up.push_back(shape[1]);
  if (!IsExact(*call.input) || call.gradient->global_shape() != looked_up) {
    return Error(ErrorCode::kIncomparable, "no look-up of rows");
  }
  const auto width = static_cast<size_t>(shape[1]);
  sums->weight.resize(static_cast<size_t>(shape[0]) * width);
  return ForEachSlice({call.input, call.gradient}, [&](const auto& values) {
    for (size_t i = 0; i < values[0].size(); ++i) {
      const auto row = static_cast<int64_t>(values[0][i]);
      if (row < 0 || row >= shape[0] || row == padding) continue;
      double* sum = sums->weight.data() + static_cast<size_t>(row) * width;
      for (size_t k = 0; k < width; ++k) sum[k] += values[1][i * width + k];
    }
  });
}

}  // namespace ttrace
