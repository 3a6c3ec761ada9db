// A share of a check's work: part 3 of 8.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_MEASURE_SHARE_H_
#define TTRACE_SRC_MEASURE_SHARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ttrace/status.h"

namespace ttrace {

struct Share {
  int part = 1;  // 1 <= part <= of
  int of = 1;
  bool operator==(const Share&) const = default;
};

inline constexpr int kMostParts = 1'000'000;

// "3/8". Fails with kInvalidArgument for anything else.
Result<Share> ParseShare(const std::string& text);
std::string ToString(const Share& share);  // "3/8"

// Whose part each of the items is, 1 to `of`: the largest first, each to the
// part that has least. A function of the sizes and their order alone, so that
// every part finds the same without a word to the others.
std::vector<int> DealOut(const std::vector<int64_t>& sizes, int of);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_SHARE_H_
