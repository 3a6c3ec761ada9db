// Where a reader looks first for what makes a tensor: the line of a class, or
// of what the loop calls.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_LOCALIZE_SOURCE_OF_TENSOR_H_
#define TTRACE_SRC_LOCALIZE_SOURCE_OF_TENSOR_H_

#include <string>

#include "src/experiment/source_lines.h"
#include "src/localize/culprit.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// Of a tensor of the run that `lines` are of. Without a file: not known.
SourcePlace SourceOf(const SourceLines& lines, const TensorId& tensor);

// Of a culprit in the candidate that `lines` are of, by the name that the
// candidate has for it, and by its stage.
SourcePlace SourceOf(const SourceLines& lines, const Culprit& culprit);

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_SOURCE_OF_TENSOR_H_
