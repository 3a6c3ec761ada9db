// What a user wants recorded: "fqn=decoder.*;role=output".
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_SELECTION_H_
#define TTRACE_SRC_EXPERIMENT_SELECTION_H_

#include <string>

#include "ttrace/status.h"

namespace ttrace {

// Fails with kInvalidArgument unless `text` is "key=glob" words, separated by
// semicolons, of the keys fqn, role, rank and micro_batch.
Status CheckSelection(const std::string& text);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_SELECTION_H_
