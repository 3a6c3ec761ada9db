#include "src/base/check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace ttrace {

void CheckFailed(const char* file, int line, const char* expression,
                 std::string_view what) {
  std::fprintf(stderr, "ttrace: bug at %s:%d: %s: %s\n", file, line, expression,
               std::string(what).c_str());
  std::abort();
}

}  // namespace ttrace
