// Reasons, expectations and notes in words. Everything that a check decides is
// typed; this is where it becomes English.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_REASON_WORDS_H_
#define TTRACE_SRC_REPORT_REASON_WORDS_H_

#include <string>

#include "src/experiment/run_note.h"
#include "src/judge/judgement.h"
#include "src/judge/reason.h"

namespace ttrace {

// "" for no reason.
std::string ReasonWords(const Reason& reason);

// Where the bound of the leg's deciding test is from: "noise 4.1e-03 x 2 (3
// noise legs + fp32 leg)".
std::string OriginWords(const LegJudgement& leg);

// One sentence, with the folder it is about in front.
std::string NoteWords(const RunNote& note);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_REASON_WORDS_H_
