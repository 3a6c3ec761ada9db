#include "src/experiment/twin_ranks.h"

#include <algorithm>
#include <limits>
#include <map>

namespace ttrace {

TwinRanks FindTwins(const RowKeys& rows, const std::vector<int>& ranks,
                    size_t whole) {
  constexpr int64_t kBeyondChance = 4;
  std::map<int, RowKeys> of_rank;
  for (size_t r = 0; r < rows.size(); ++r) of_rank[ranks[r]].push_back(rows[r]);
  std::map<RowKeys, std::vector<int>> alike;
  for (auto& [rank, keys] : of_rank) {
    std::sort(keys.begin(), keys.end());
    alike[keys].push_back(rank);
  }
  TwinRanks out;
  for (const auto& [keys, twins] : alike) {
    if (twins.size() < 2 || keys.size() >= whole) continue;
    if (CountDistinct(keys) < kBeyondChance) continue;
    out.ranks.insert(out.ranks.end(), twins.begin(), twins.end());
    out.keys.insert(keys.begin(), keys.end());
  }
  std::sort(out.ranks.begin(), out.ranks.end());
  return out;
}

std::vector<int> RanksFedAlike(const FedRows::Parts& parts) {
  RowKeys rows;
  std::vector<int> ranks;
  for (const auto& [micro_batch, part] : parts) {
    RowKeys own;
    for (const auto& [name, tensor] : part.tensors) {
      if (name.second != 0 || tensor.is_relative) continue;
      const RowKeys& keys = tensor.digests.whole;
      if (!own.empty() && own.size() != keys.size()) continue;
      own = own.empty() ? keys : Joined(own, keys);
    }
    rows.insert(rows.end(), own.begin(), own.end());
    ranks.insert(ranks.end(), own.size(), part.rank);
  }
  return FindTwins(rows, ranks, std::numeric_limits<size_t>::max()).ranks;
}

}  // namespace ttrace
