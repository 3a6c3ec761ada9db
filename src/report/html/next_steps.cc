#include <fmt/format.h>

#include "src/report/html/html_text.h"
#include "src/report/html/sections.h"

namespace ttrace {
namespace {

// Where in a step its command begins, if it holds one.
size_t CommandStart(const std::string& step) {
  size_t first = std::string::npos;
  for (const char* verb :
       {"ttrace inspect ", "ttrace record ", "ttrace check ", "ttrace diff ",
        "ttrace merge ", "ttrace report ", "ttrace baseline "}) {
    first = std::min(first, step.find(verb));
  }
  return first;
}

}  // namespace

std::string CommandHtml(std::string_view command) {
  return "<span class=cmd><code>" + HtmlText(command) +
         "</code><button type=button class=copy hidden>copy</button></span>";
}

std::string NextStepsHtml(const std::vector<std::string>& steps) {
  if (steps.empty()) return "";
  std::string out = "<h3>Next</h3><ul class=\"plain next\">";
  for (const std::string& step : steps) {
    const size_t start = CommandStart(step);
    out += "<li>" + HtmlText(step.substr(0, start));
    if (start != std::string::npos) out += CommandHtml(step.substr(start));
  }
  return out + "</ul>";
}

}  // namespace ttrace
