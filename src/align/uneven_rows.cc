#include "src/align/uneven_rows.h"

#include <algorithm>

namespace ttrace {

UnevenRows::UnevenRows(const FedRows& fed) {
  for (const auto& [id, parts] : fed.calls()) {
    Call call;
    bool even = true;
    int next = 0;
    std::map<int, int> parts_of_rank;
    for (const auto& [micro_batch, part] : parts) {
      ++parts_of_rank[part.rank];
      even = even && micro_batch == next++ &&
             part.rows == parts.begin()->second.rows;
      call.parts[micro_batch] = {call.rows, part.rows};
      call.rows += part.rows;
    }
    // A rank that has fewer micro-batches than another counts fewer rows.
    for (const auto& [rank, count] : parts_of_rank) {
      even = even && count == parts_of_rank.begin()->second;
    }
    if (!even) calls_.emplace(id, std::move(call));
  }
}

bool UnevenRows::MayHave(const TensorId& id) const {
  return std::any_of(calls_.begin(), calls_.end(), [&](const auto& call) {
    return call.first.iteration == id.iteration;
  });
}

void UnevenRows::Place(const FedCall& of, RecordFields* record) const {
  if (!record->rows || record->micro_batch < 0) return;
  const auto call = calls_.find(of);
  if (call == calls_.end()) return;
  const auto found = call->second.parts.find(record->micro_batch);
  if (found == call->second.parts.end()) return;
  const Part& part = found->second;
  BatchRows rows = *record->rows;
  // A rank may hold a part of its micro-batch's rows.
  const int64_t offset = rows.begin - record->micro_batch * part.rows;
  if (offset < 0 || offset + rows.count > part.rows) return;
  rows.begin = part.begin + offset;
  rows.global = call->second.rows;
  DimLayout& dim = record->layout.dims[static_cast<size_t>(rows.dim)];
  dim.segments = {{rows.begin, rows.count}};
  dim.global_size = rows.global;
  record->rows = rows;
}

}  // namespace ttrace
