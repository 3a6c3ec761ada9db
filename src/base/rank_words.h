// Short lists of ranks and micro-batches for people.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_BASE_RANK_WORDS_H_
#define TTRACE_SRC_BASE_RANK_WORDS_H_

#include <string>
#include <vector>

namespace ttrace {

// "ranks 0, 1" or "rank 3"; long lists are cut.
std::string RankWords(const std::vector<int>& ranks);

// "micro-batches 0, 1".
std::string MicroBatchWords(const std::vector<int>& micro_batches);

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_RANK_WORDS_H_
