// A result as one HTML file that a person opens: no request to anywhere, the
// essentials without a script, and with one the map of the model, error over
// depth, and each tensor. docs/html_report.md says how to read it.
//
// Names come from files that anyone may have written. They are escaped on their
// way into the page (html_text.h); the script makes text nodes of them only;
// and a content security policy permits the two constants of assets.h alone, so
// that a script in a name would not run even if both failed.
//
// Thread safety: pure functions. Equal results give equal bytes.

#ifndef TTRACE_SRC_REPORT_HTML_HTML_H_
#define TTRACE_SRC_REPORT_HTML_HTML_H_

#include <string>
#include <utility>
#include <vector>

#include "src/report/result_file.h"

namespace ttrace {

std::string RenderHtml(const ResultFile& result);

// Several results side by side, the first as what the others are held against:
// verdicts, first places, and a matrix of layers, kinds and results. Each with
// the path that it was read from.
std::string RenderHtmlComparison(
    const std::vector<std::pair<std::string, ResultFile>>& results);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_HTML_H_
