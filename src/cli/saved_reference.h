// What a reference that lies there already decides of a diff.

#ifndef TTRACE_SRC_CLI_SAVED_REFERENCE_H_
#define TTRACE_SRC_CLI_SAVED_REFERENCE_H_

#include "src/cli/diff.h"
#include "ttrace/status.h"

namespace ttrace {

// Of --reference-trace: iterations that were not asked for are its own, and one
// of summaries has nothing to graft, which is said. Fails if it cannot be read,
// with kInvalidArgument if it lacks iterations that were asked for.
Status LookAtSavedReference(DiffArguments* options);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_SAVED_REFERENCE_H_
