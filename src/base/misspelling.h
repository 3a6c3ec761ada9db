// "Did you mean": the known word nearest to a misspelt one.

#ifndef TTRACE_SRC_BASE_MISSPELLING_H_
#define TTRACE_SRC_BASE_MISSPELLING_H_

#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// The word of `known` with the fewest single-letter edits (a swap of two
// neighbours is one), or "" if more than a third of the letters would change:
// a far guess misleads.
std::string Nearest(std::string_view word,
                    const std::vector<std::string>& known);

// "; did you mean <nearest>?", or "" if none is near.
std::string DidYouMean(std::string_view word,
                       const std::vector<std::string>& known);

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_MISSPELLING_H_
