#include "src/base/check.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "src/base/check_handler.h"

namespace ttrace {
namespace {

std::atomic<bool> g_throws{false};

}  // namespace

void ThrowOnFailedChecks() { g_throws.store(true); }

void CheckFailed(const char* file, int line, const char* expression,
                 std::string_view what) {
  const std::string message = std::string("bug at ") + file + ":" +
                              std::to_string(line) + ": " + expression + ": " +
                              std::string(what);
  if (g_throws.load()) throw Bug(message);
  std::fprintf(stderr, "ttrace: %s\n", message.c_str());
  std::abort();
}

}  // namespace ttrace
