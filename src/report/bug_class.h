// The classes of bugs a diagnosis can name, by letter.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_BUG_CLASS_H_
#define TTRACE_SRC_REPORT_BUG_CLASS_H_

#include <string_view>

namespace ttrace {

// "missing partial sum" for "P"; "unknown class" for a letter that
// docs/result_schema.md does not list.
std::string_view BugClassName(std::string_view letter);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_BUG_CLASS_H_
