// Where a bound is from, in words.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_JUDGE_ORIGIN_WORDS_H_
#define TTRACE_SRC_JUDGE_ORIGIN_WORDS_H_

#include <string>

#include "src/judge/judgement.h"

namespace ttrace {

// Of the leg's deciding test: "noise 4.1e-03 x 2 (3 noise legs + fp32 leg)".
std::string OriginWords(const LegJudgement& leg);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_ORIGIN_WORDS_H_
