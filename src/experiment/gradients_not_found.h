// GradientsNotFound: parameters of which an optimizer found no gradient (None,
// which is not zeros) when its step began. From the notes "no_gradient".
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_GRADIENTS_NOT_FOUND_H_
#define TTRACE_SRC_EXPERIMENT_GRADIENTS_NOT_FOUND_H_

#include <map>
#include <set>
#include <string>
#include <utility>

#include "src/trace/note_list.h"

namespace ttrace {

// (iteration, parameter) -> ranks whose optimizer found none.
using GradientsNotFound = std::map<std::pair<int, std::string>, std::set<int>>;

// Never fails: what cannot be read is left out.
GradientsNotFound ReadGradientsNotFound(const NoteList& notes);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_GRADIENTS_NOT_FOUND_H_
