// TTRACE_CHECK: for bugs of our own. It aborts with the expression and a
// sentence. No file content and no user input may ever reach a failing one:
// those are Errors (include/ttrace/status.h).

#ifndef TTRACE_SRC_BASE_CHECK_H_
#define TTRACE_SRC_BASE_CHECK_H_

#include <string_view>

namespace ttrace {

[[noreturn]] void CheckFailed(const char* file, int line,
                              const char* expression, std::string_view what);

}  // namespace ttrace

#define TTRACE_CHECK(condition, what)                              \
  do {                                                             \
    if (!(condition)) {                                            \
      ::ttrace::CheckFailed(__FILE__, __LINE__, #condition, what); \
    }                                                              \
  } while (false)

#ifdef NDEBUG
#define TTRACE_DCHECK(condition, what) static_cast<void>(0)
#else
#define TTRACE_DCHECK(condition, what) TTRACE_CHECK(condition, what)
#endif

#endif  // TTRACE_SRC_BASE_CHECK_H_
