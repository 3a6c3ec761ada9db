// What a check has to say beside its verdict: of the two runs before anything
// is judged, and of what was judged.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_CHECK_NOTES_ON_CHECK_H_
#define TTRACE_SRC_CHECK_NOTES_ON_CHECK_H_

#include <vector>

#include "src/check/open_runs.h"
#include "src/check/run_settings.h"
#include "src/experiment/run_note.h"
#include "src/judge/judge_run.h"
#include "src/judge/judge_step.h"
#include "src/judge/judgement.h"
#include "src/measure/measurements.h"

namespace ttrace {

// Puts `more` behind `notes`.
void Append(std::vector<RunNote> more, std::vector<RunNote>* notes);

// What they said themselves, how they differ, and whose rows they read.
std::vector<RunNote> NotesOnRuns(const OpenRuns& runs,
                                 const SettingsOfRuns& said);

// Of the tensors that were judged; `reference_steps`: the reference is trusted,
// that its steps are strange is said.
std::vector<RunNote> NotesOnTensors(const OpenRuns& runs,
                                    const JudgeOutcome& judged,
                                    const ReplayedSteps& reference_steps);

// Whoever met damaged bytes may have gone on without them: no verdict stands on
// what is left. `damaged`: what measuring met, perhaps in another process.
void NoteDamage(const Side& side, DamagedNumbers damaged,
                std::vector<RunNote>* notes);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_NOTES_ON_CHECK_H_
