// What all pages have: the head with its policy, style and script.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_HTML_FRAME_H_
#define TTRACE_SRC_REPORT_HTML_FRAME_H_

#include <string>
#include <string_view>

namespace ttrace {

struct Frame {
  std::string title;    // HTML
  std::string verdict;  // a class of the body, a word of ours
  std::string body;     // HTML
  std::string data;     // for the script; empty: a page without one
};
std::string FrameHtml(const Frame& frame);

// "'sha256-...'" of a content security policy from hexadecimal digits.
std::string PolicyHash(std::string_view sha256);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_FRAME_H_
