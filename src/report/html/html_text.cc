#include "src/report/html/html_text.h"

#include <fmt/format.h>

#include <cmath>

#include "src/base/format.h"

namespace ttrace {
namespace {

// Evidence and provenance are sentences; the longest of ours are below 1,000.
constexpr size_t kLongestHtmlText = 1500;

std::string EscapeMarkup(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

std::string HtmlText(std::string_view text) {
  return EscapeMarkup(ShortenMiddle(Printable(text), kLongestHtmlText));
}

std::string ShownName(std::string_view name) {
  return ShortenMiddle(Printable(name), kLongestHtmlName);
}

std::string HtmlName(std::string_view name) {
  if (name.empty()) return "(model)";
  std::string out;
  for (const char c : EscapeMarkup(ShownName(name))) {
    out += c;
    if (c == '.' || c == '_') out += "<wbr>";
  }
  return out;
}

std::string HtmlError(double error) {
  if (std::isinf(error)) return "&infin;";
  return FormatError(error);
}

std::string HtmlHeadroom(double headroom) {
  if (std::isinf(headroom)) return "&infin;";
  if (std::isnan(headroom)) return "NaN";
  return HtmlText(FormatHeadroom(headroom));
}

std::string TensorFragment(const std::vector<std::string>& parts) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
  std::string out = "#tensor=";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += '/';
    for (const char c : parts[i]) {
      if (kPlain.find(c) != std::string_view::npos) {
        out += c;
      } else {
        out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
      }
    }
  }
  return out;
}

}  // namespace ttrace
