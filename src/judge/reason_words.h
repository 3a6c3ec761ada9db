// Reasons in words. What a check decides of a tensor is typed; this is where it
// becomes English.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_JUDGE_REASON_WORDS_H_
#define TTRACE_SRC_JUDGE_REASON_WORDS_H_

#include <string>

#include "src/judge/reason.h"

namespace ttrace {

// A clause that may end a sentence: "its bound of 3.0e-01 is too wide to mean
// anything". "" for no reason.
std::string ReasonWords(const Reason& reason);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_REASON_WORDS_H_
