#include "src/compare/equal_copies.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// All fields, which are numbers of 8 bytes: two NaN are one value here.
using Bits = std::array<uint64_t, sizeof(ErrorStats) / 8>;
Bits BitsOf(const ErrorStats& stats) { return std::bit_cast<Bits>(stats); }

}  // namespace

void JoinEqualCopies(TensorComparison* comparison) {
  std::vector<InstanceStats>& all = comparison->instances;
  std::vector<InstanceStats> joined;
  std::map<std::tuple<int, int, Bits>, size_t> places;
  for (InstanceStats& one : all) {
    const auto [place, is_new] = places.try_emplace(
        {one.region, one.micro_batch, BitsOf(one.stats)}, joined.size());
    if (is_new) {
      joined.push_back(std::move(one));
      continue;
    }
    InstanceStats& like = joined[place->second];
    like.copies += one.copies;
    like.ranks.insert(like.ranks.end(), one.ranks.begin(), one.ranks.end());
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
