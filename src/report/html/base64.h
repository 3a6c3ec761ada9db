// Thread safety: pure function.

#ifndef TTRACE_SRC_REPORT_HTML_BASE64_H_
#define TTRACE_SRC_REPORT_HTML_BASE64_H_

#include <string>
#include <string_view>

namespace ttrace {

std::string Base64(std::string_view bytes);  // with padding, RFC 4648

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_BASE64_H_
