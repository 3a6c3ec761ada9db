// Which part of a tensor a layout holds, in words.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_REGION_BOX_WORDS_H_
#define TTRACE_SRC_REGION_BOX_WORDS_H_

#include <string>

#include "ttrace/layout.h"

namespace ttrace {

// "[0:32 64:96, all]": of each dimension the indices, "all" for a whole one.
// Of more than eight runs of indices the first and how many there are.
std::string BoxWords(const Layout& layout);

}  // namespace ttrace

#endif  // TTRACE_SRC_REGION_BOX_WORDS_H_
