// Text, names and numbers as HTML. Everything that comes from a file passes
// HtmlText or HtmlName on its way into a page, and nothing else does.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_HTML_HTML_TEXT_H_
#define TTRACE_SRC_REPORT_HTML_HTML_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// A name of more code points loses its middle: nobody reads one of 100,000, and
// each mention would cost a page as many bytes.
inline constexpr size_t kLongestHtmlName = 300;

// Safe as text and in an attribute in double quotes. What cannot be seen or
// changes the direction of text is shown as an escape (Printable).
std::string HtmlText(std::string_view text);

// As a page shows a name, before it is made HTML: printable, of bounded length.
std::string ShownName(std::string_view name);

// A qualified name, with places where a line may break. Of "" the model.
std::string HtmlName(std::string_view name);

// "6.7e-01", "0", an infinity sign, "-" where nothing was measured.
std::string HtmlError(double error);
std::string HtmlHeadroom(double headroom);

// The fragment that opens one tensor in the page's script: of shown texts,
// percent-encoded, joined by "/".
std::string TensorFragment(const std::vector<std::string>& parts);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_HTML_TEXT_H_
