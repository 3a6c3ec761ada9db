// Whether two runs are the same computation bit for bit: after an upgrade, a
// resume, or on another machine. No tolerance, no noise and no exemption: what
// differs in one bit differs, and the first that does is where to look.
//
// Thread safety: as JudgeRun.

#ifndef TTRACE_SRC_JUDGE_JUDGE_BITS_H_
#define TTRACE_SRC_JUDGE_JUDGE_BITS_H_

#include "src/judge/judge_run.h"
#include "src/measure/measure_run.h"
#include "src/measure/measurements.h"

namespace ttrace {

// As JudgeRun, of the leg `real` alone; of what only digests were kept these
// are compared. Where both runs cut a tensor alike, each rank's piece has to be
// the same; else what the pieces make together, and all copies. The facts of
// `measured` are gone afterwards.
// REQUIRES: a reference.
JudgeOutcome JudgeBits(const RunContext& context, Measurements* measured);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_JUDGE_BITS_H_
