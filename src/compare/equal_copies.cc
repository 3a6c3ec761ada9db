#include "src/compare/equal_copies.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// All fields, which are numbers of 8 bytes: two NaN are one value here.
auto BitsOf(const ErrorStats& stats) {
  return std::bit_cast<std::array<uint64_t, sizeof(ErrorStats) / 8>>(stats);
}

bool Alike(const InstanceStats& a, const InstanceStats& b) {
  return a.region == b.region && a.micro_batch == b.micro_batch &&
         BitsOf(a.stats) == BitsOf(b.stats);
}

}  // namespace

void JoinEqualCopies(TensorComparison* comparison) {
  std::vector<InstanceStats>& all = comparison->instances;
  std::sort(all.begin(), all.end(),
            [](const InstanceStats& a, const InstanceStats& b) {
              const auto place = std::pair(a.region, a.micro_batch);
              const auto other = std::pair(b.region, b.micro_batch);
              if (place != other) return place < other;
              const auto bits = BitsOf(a.stats);
              const auto others = BitsOf(b.stats);
              return bits != others ? bits < others : a.ranks < b.ranks;
            });
  std::vector<InstanceStats> joined;
  for (InstanceStats& one : all) {
    if (joined.empty() || !Alike(joined.back(), one)) {
      joined.push_back(std::move(one));
      continue;
    }
    joined.back().copies += one.copies;
    std::vector<int>& ranks = joined.back().ranks;
    ranks.insert(ranks.end(), one.ranks.begin(), one.ranks.end());
  }
  for (InstanceStats& one : joined) {
    std::sort(one.ranks.begin(), one.ranks.end());
    one.ranks.erase(std::unique(one.ranks.begin(), one.ranks.end()),
                    one.ranks.end());
    one.ranks.shrink_to_fit();
  }
  std::sort(joined.begin(), joined.end(),
            [](const InstanceStats& a, const InstanceStats& b) {
              const auto place = std::tie(a.micro_batch, a.ranks, a.region);
              const auto other = std::tie(b.micro_batch, b.ranks, b.region);
              return place != other ? place < other
                                    : BitsOf(a.stats) < BitsOf(b.stats);
            });
  joined.shrink_to_fit();
  all = std::move(joined);
}

}  // namespace ttrace
