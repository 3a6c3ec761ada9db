// What a command said last about its own failure, found in its output.
//
// A crash is a Python traceback, the words of a C++ runtime, or one line of a
// shell or an option parser; torch puts "[rank3]: " in front of each line. When
// one rank fails, the others and the launcher fail after it and say so at
// length: the first failure that is no consequence of another is what counts.

#ifndef TTRACE_SRC_RUN_LAST_ERROR_H_
#define TTRACE_SRC_RUN_LAST_ERROR_H_

#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// "rank 3: TypeError: ...", in one printable line; "" if none is recognised.
std::string LastError(std::string_view output);

// The last `lines` lines that led to it, of the process that it is of: for a
// traceback, its frames. Printable; empty if no error is recognised.
std::vector<std::string> LinesOfLastError(std::string_view output, int lines);

// Whether an error only says that another process failed before.
bool IsConsequence(std::string_view error);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_LAST_ERROR_H_
