// Where in a culprit's tensor its error lies: by blocks of indices, and by what
// ranks hold.
//
// Thread safety: pure function of const inputs.

#ifndef TTRACE_SRC_DIAGNOSE_FIND_PATTERN_H_
#define TTRACE_SRC_DIAGNOSE_FIND_PATTERN_H_

#include <optional>

#include "src/diagnose/evidence.h"
#include "src/localize/error_pattern.h"

namespace ttrace {

// Of copies, of the worst. Reads at most about 2^22 elements of each side. None
// of a number, of a tensor whose values were not kept on both sides or cannot
// be read, or without a leg that says that it is wrong.
std::optional<ErrorPattern> FindPattern(const Evidence& evidence);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_FIND_PATTERN_H_
