#include "src/measure/share.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace ttrace {

Result<Share> ParseShare(const std::string& text) {
  Share share;
  const char* end = text.data() + text.size();
  const auto part = std::from_chars(text.data(), end, share.part);
  if (part.ec == std::errc() && part.ptr != end && *part.ptr == '/') {
    const auto of = std::from_chars(part.ptr + 1, end, share.of);
    if (of.ec == std::errc() && of.ptr == end && 1 <= share.part &&
        share.part <= share.of && share.of <= kMostParts) {
      return share;
    }
  }
  return Error(
      ErrorCode::kInvalidArgument,
      "'" + text +
          "' is no part of a check: give I/N, from 1/N to N/N, as 3/8");
}

std::string ToString(const Share& share) {
  return std::to_string(share.part) + "/" + std::to_string(share.of);
}

std::vector<int> DealOut(const std::vector<int64_t>& sizes, int of) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  using Load = std::pair<int64_t, int>;  // bytes, part
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (int part = 1; part <= of; ++part) least.emplace(0, part);
  std::vector<int> parts(sizes.size());
  for (const size_t item : order) {
    const auto [bytes, part] = least.top();
    least.pop();
    parts[item] = part;
    // Even what is empty is work.
    least.emplace(bytes + std::max<int64_t>(sizes[item], 1), part);
  }
  return parts;
}

}  // namespace ttrace
