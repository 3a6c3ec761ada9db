// Counts and examples in words.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_BASE_COUNT_WORDS_H_
#define TTRACE_SRC_BASE_COUNT_WORDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// "1 tensor", "1,820 tensors".
std::string Counted(int64_t count, std::string_view noun);

// "fc1, fc2, ...": names that stand for `count` things. An empty one is the
// model's.
std::string Examples(const std::vector<std::string>& names, int64_t count);

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_COUNT_WORDS_H_
