// Style and script of the page, as the build put them in (cmake/Embed.cmake),
// and their SHA-256: the page permits these two and nothing else.
//
// Thread safety: constants.

#ifndef TTRACE_SRC_REPORT_HTML_ASSETS_H_
#define TTRACE_SRC_REPORT_HTML_ASSETS_H_

#include <string_view>

namespace ttrace {

extern const std::string_view kHtmlStyle;
extern const std::string_view kHtmlStyleSha256;  // 64 hexadecimal digits
extern const std::string_view kHtmlScript;
extern const std::string_view kHtmlScriptSha256;

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_ASSETS_H_
