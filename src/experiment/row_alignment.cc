#include "src/experiment/row_alignment.h"

#include <algorithm>
#include <span>
#include <utility>

#include "src/compare/summaries/compare_summaries.h"

namespace ttrace {
namespace {

using Parts = FedRows::Parts;

// The batch dimension of a root input, or -1.
int BatchDim(const TensorPieces& pieces) {
  const Record& first = pieces.pieces.front();
  return first.rows() ? first.rows()->dim : -1;
}

// The rows of the whole tensor, read as numbers.
Result<FedTensor> RowsOf(const TensorPieces& pieces, int batch_dim) {
  const Shape shape = pieces.global_shape();
  FedTensor out;
  const auto dim = static_cast<size_t>(batch_dim);
  out.rows = shape[dim];
  for (int64_t r = 0; r < shape[dim]; ++r) {
    Shape begin(shape.size(), 0);
    Shape size = shape;
    begin[dim] = r;
    size[dim] = 1;
    TTRACE_ASSIGN_OR_RETURN(const auto row, ReadBox(pieces, begin, size));
    const auto bytes = std::as_bytes(std::span(row));
    out.digests.whole.push_back(
        DigestRows(bytes, 1, sizeof(double)).whole.front());
  }
  return out;
}

// What the model was fed by what was recorded of it, all micro-batches as one:
// where capture noted nothing.
Status ReadRecorded(const Side& reference, const Side& candidate,
                    const std::optional<IterationRange>& iterations,
                    std::map<FedCall, std::pair<Parts, Parts>>* out) {
  for (const auto& [id, pieces] : candidate.real()) {
    if (!id.fqn.empty() || id.role != Role::kInput) continue;
    if (iterations && !iterations->contains(id.iteration)) continue;
    const TensorPieces* other = reference.FindSameValue(kReal, id);
    const int dim = BatchDim(pieces);
    if (other == nullptr || dim < 0 || BatchDim(*other) != dim ||
        other->global_shape() != pieces.global_shape() ||
        !other->MayBeWhole() || !pieces.MayBeWhole() || HasSummaries(*other) ||
        HasSummaries(pieces)) {
      continue;
    }
    TTRACE_ASSIGN_OR_RETURN(FedTensor theirs, RowsOf(*other, dim));
    TTRACE_ASSIGN_OR_RETURN(FedTensor own, RowsOf(pieces, dim));
    auto& [reference_parts, candidate_parts] = (*out)[{false, id.iteration, 0}];
    const FedName name(id.arg + "#" + std::to_string(id.call), 0);
    reference_parts[0].tensors[name] = std::move(theirs);
    candidate_parts[0].tensors[name] = std::move(own);
  }
  return Done{};
}

}  // namespace

FedRows::Parts WithItems(const FedRows& fed, const FedCall& call,
                         const Parts& parts) {
  Parts out = parts;
  const Parts* items = fed.Find({true, call.iteration, call.call});
  if (items == nullptr) items = fed.Find({true, call.iteration, 0});
  if (items == nullptr) return out;
  for (auto& [micro_batch, part] : out) {
    const auto item = items->find(micro_batch);
    if (item == items->end()) continue;
    for (const auto& [name, tensor] : item->second.tensors) {
      part.tensors.emplace(FedName(kOfItem + name.first, name.second), tensor);
    }
  }
  return out;
}

const RowsOfCall* RowAlignment::Find(const FedCall& call) const {
  const auto found = calls.find(call);
  return found == calls.end() ? nullptr : &found->second;
}

CompareOptions RowAlignment::OptionsFor(const Side& candidate,
                                        const TensorId& id,
                                        const TensorPieces& pieces) const {
  CompareOptions options;
  const Record& first = pieces.pieces.front();
  const RowsOfCall* call =
      Find(candidate.fed_rows().CallOf(id, first.micro_batch()));
  if (call == nullptr || (!first.rows() && !first.routed())) return options;
  const int64_t size =
      first.rows() ? first.rows()->global : first.layout().dims[0].global_size;
  // A dimension of exactly that many; else one of several elements a row.
  for (const RowSpace& space : call->spaces) {
    if (space.total != size) continue;
    if (space.map) options.rows = &*space.map;
    return options;
  }
  for (const RowSpace& space : call->spaces) {
    if (space.total == 0 || size % space.total != 0) continue;
    if (space.map) options.rows = &*space.map;
    return options;
  }
  return options;
}

std::vector<int64_t> RowAlignment::Foreign(int iteration) const {
  for (const auto& [id, call] : calls) {
    if (id.iteration == iteration && !id.is_data && !call.foreign.empty()) {
      return call.foreign;
    }
  }
  return {};
}

std::vector<int> RowAlignment::Repeating(int iteration) const {
  for (const auto& [id, call] : calls) {
    if (id.iteration == iteration && !id.is_data &&
        call.repeated.ranks.size() > 1) {
      return call.repeated.ranks;
    }
  }
  return {};
}

bool RowAlignment::Reorders(int iteration) const {
  return std::any_of(calls.begin(), calls.end(), [&](const auto& call) {
    return call.first.iteration == iteration && !call.second.spaces.empty() &&
           call.second.spaces.front().map.has_value();
  });
}

Result<RowAlignment> FindRows(const Side& reference, const Side& candidate,
                              const std::optional<IterationRange>& iterations) {
  std::map<FedCall, std::pair<Parts, Parts>> fed;
  if (candidate.fed_rows().empty() || reference.fed_rows().empty()) {
    TTRACE_RETURN_IF_ERROR(
        ReadRecorded(reference, candidate, iterations, &fed));
  }
  for (const auto& [id, parts] : candidate.fed_rows().calls()) {
    if (iterations && !iterations->contains(id.iteration)) continue;
    const Parts* theirs = reference.fed_rows().Find(id);
    if (theirs == nullptr) continue;
    fed[id] = id.is_data
                  ? std::pair(*theirs, parts)
                  : std::pair(WithItems(reference.fed_rows(), id, *theirs),
                              WithItems(candidate.fed_rows(), id, parts));
  }
  RowAlignment out;
  for (const auto& [id, sides] : fed) {
    out.calls[id] = MatchCall(sides.first, sides.second, id.is_data);
  }
  return out;
}

}  // namespace ttrace
