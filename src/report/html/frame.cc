#include "src/report/html/frame.h"

#include "src/report/html/assets.h"
#include "src/report/html/base64.h"

namespace ttrace {
namespace {

char HexDigit(char c) {
  return static_cast<char>(c <= '9' ? c - '0' : c - 'a' + 10);
}

}  // namespace

std::string PolicyHash(std::string_view sha256) {
  std::string bytes;
  for (size_t i = 0; i + 1 < sha256.size(); i += 2) {
    bytes +=
        static_cast<char>(HexDigit(sha256[i]) * 16 + HexDigit(sha256[i + 1]));
  }
  return "'sha256-" + Base64(bytes) + "'";
}

std::string FrameHtml(const Frame& frame) {
  const bool has_script = !frame.data.empty();
  std::string out =
      "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta "
      "name=generator content=ttrace>\n<meta "
      "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src " +
      PolicyHash(kHtmlStyleSha256) + "; script-src " +
      (has_script ? PolicyHash(kHtmlScriptSha256) : "'none'") +
      "; base-uri 'none'; form-action 'none'\">\n<meta name=viewport "
      "content=\"width=device-width, initial-scale=1\">\n<meta "
      "name=color-scheme content=\"light dark\">\n<meta name=referrer "
      "content=no-referrer>\n<title>" +
      frame.title + "</title>\n<style>";
  out += kHtmlStyle;
  out += "</style>\n</head>\n<body class=\"v-" + frame.verdict + "\">\n" +
         frame.body;
  if (has_script) {
    out += "<script type=\"application/json\" id=data>" + frame.data +
           "</script>\n<script>";
    out += kHtmlScript;
    out += "</script>\n";
  }
  return out + "</body>\n</html>\n";
}

}  // namespace ttrace
