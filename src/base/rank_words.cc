#include "src/base/rank_words.h"

namespace ttrace {

namespace {

std::string Listed(const char* one, const char* many,
                   const std::vector<int>& numbers) {
  constexpr size_t kShown = 8;
  std::string out = numbers.size() == 1 ? one : many;
  for (size_t i = 0; i < numbers.size() && i < kShown; ++i) {
    out += (i == 0 ? " " : ", ") + std::to_string(numbers[i]);
  }
  if (numbers.size() > kShown) out += ", ...";
  return out;
}

}  // namespace

std::string RankWords(const std::vector<int>& ranks) {
  return Listed("rank", "ranks", ranks);
}

std::string MicroBatchWords(const std::vector<int>& micro_batches) {
  return Listed("micro-batch", "micro-batches", micro_batches);
}

}  // namespace ttrace
