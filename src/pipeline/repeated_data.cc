#include "src/pipeline/repeated_data.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/align/read_local.h"
#include "src/diagnose/sample.h"

namespace ttrace {
namespace {

struct Read {
  std::vector<int64_t> rows;      // where each micro-batch begins
  std::vector<uint64_t> digests;  // and what it is
};

// Whether not all rows that `rank` reads are one and the same, as positions and
// masks without padding are.
bool HasDistinctRows(const TensorPieces& own, int rank) {
  const RankPieces part(own, rank);
  std::optional<std::vector<double>> first;
  for (const Record* record : part.pieces().pieces) {
    const BatchRows& rows = *record->rows;
    const auto dim = static_cast<size_t>(rows.dim);
    Shape size = own.global_shape();
    Shape begin(size.size(), 0);
    size[dim] = 1;
    for (int64_t row = rows.begin; row < rows.begin + rows.count; ++row) {
      begin[dim] = row;
      auto values = ReadBox(part.pieces(), begin, size);
      if (!values.ok()) return false;
      if (!first)
        first = *std::move(values);
      else if (*values != *first)
        return true;
    }
  }
  return false;
}

}  // namespace

RepeatedData FindRepeatedData(const TensorPieces& own,
                              const std::vector<int>& wrong) {
  std::map<int, Read> reads;
  for (const Record* record : own.pieces) {  // by rank, then micro-batch
    if (!record->rows) return {};
    Read& read = reads[record->rank];
    read.rows.push_back(record->rows->begin);
    read.digests.push_back(record->extent.xxh3);
  }
  std::set<int> ranks;
  std::set<int> as;
  RepeatedData out;
  for (const int rank : wrong) {
    const auto mine = reads.find(rank);
    if (mine == reads.end() || !HasDistinctRows(own, rank)) continue;
    for (const auto& [other, theirs] : reads) {
      const bool elsewhere = std::none_of(
          theirs.rows.begin(), theirs.rows.end(), [&](int64_t row) {
            return std::find(mine->second.rows.begin(), mine->second.rows.end(),
                             row) != mine->second.rows.end();
          });
      if (!elsewhere || theirs.digests != mine->second.digests) continue;
      ranks.insert(rank);
      as.insert(other);
      out.micro_batches = static_cast<int64_t>(theirs.digests.size());
    }
  }
  // Where none is in its own place, each reads as the others do.
  std::erase_if(as, [&](int rank) { return ranks.contains(rank); });
  if (as.empty()) as = ranks;
  out.ranks.assign(ranks.begin(), ranks.end());
  out.as.assign(as.begin(), as.end());
  return out;
}

}  // namespace ttrace
