// Reasons and expectations in words. What a check decides of a tensor is typed;
// this is where it becomes English.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_REASON_WORDS_H_
#define TTRACE_SRC_REPORT_REASON_WORDS_H_

#include <string>

#include "src/judge/judgement.h"
#include "src/judge/reason.h"
#include "src/localize/culprit.h"

namespace ttrace {

// "" for no reason.
std::string ReasonWords(const Reason& reason);

// "its iteration's 12 reduced gradients are all clean"
std::string ContradictionWords(const Contradiction& contradiction);

// "fc output 0, iteration 0, is out of bounds, but isolated it is clean ..."
std::string ContestWords(const Culprit& culprit);

// Where the bound of the leg's deciding test is from: "noise 4.1e-03 x 2 (3
// noise legs + fp32 leg)".
std::string OriginWords(const LegJudgement& leg);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_REASON_WORDS_H_
