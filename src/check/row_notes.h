// What a reader has to know of whose rows the two runs worked on.
//
// Thread safety: pure function of const inputs.

#ifndef TTRACE_SRC_CHECK_ROW_NOTES_H_
#define TTRACE_SRC_CHECK_ROW_NOTES_H_

#include <vector>

#include "src/experiment/row_alignment.h"
#include "src/experiment/run_note.h"
#include "src/experiment/side.h"

namespace ttrace {

// Rows that were matched in another order; and, leaving the verdict open, rows
// that hold something else beside what the reference has, inputs that the loop
// made of other values than the reference's loop, and a model that is called
// otherwise.
std::vector<RunNote> RowNotes(const Side& reference, const Side& candidate,
                              const RowAlignment& rows);

// Without a reference: ranks that feed the model the same rows, which is right
// only where each has a part of the loss.
std::vector<RunNote> TwinNotes(const Side& candidate);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_ROW_NOTES_H_
