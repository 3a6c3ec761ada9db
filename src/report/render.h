// Renderings of a CheckResult. Pure functions; equal results give equal bytes,
// except for the seconds.

#ifndef TTRACE_SRC_REPORT_RENDER_H_
#define TTRACE_SRC_REPORT_RENDER_H_

#include <string>

#include "src/report/check_result.h"

namespace ttrace {

struct TerminalOptions {
  bool color = false;
  bool verbose = false;  // every diverged tensor, not only the first ones
  int width = 80;
};
std::string RenderTerminal(const CheckResult& result,
                           const TerminalOptions& options = {});

// result.json; its schema is docs/result_schema.md.
std::string RenderJson(const CheckResult& result);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_RENDER_H_
