// What speaks against a culprit, in words.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_LOCALIZE_CONTRADICTION_WORDS_H_
#define TTRACE_SRC_LOCALIZE_CONTRADICTION_WORDS_H_

#include <string>

#include "src/localize/culprit.h"

namespace ttrace {

// "its iteration's 12 reduced gradients are all clean"
std::string ContradictionWords(const Contradiction& contradiction);

// "fc output 0, iteration 0, is out of bounds, but isolated it is clean ..."
std::string ContestWords(const Culprit& culprit);

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_CONTRADICTION_WORDS_H_
