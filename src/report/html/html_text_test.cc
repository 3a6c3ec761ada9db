#include "src/report/html/html_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/report/html/base64.h"
#include "src/report/html/frame.h"

namespace ttrace::html_text_test {
namespace {

using testing::HasSubstr;

TEST(Base64, IsThatOfRfc4648) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(Base64(std::string("\xFB\xFF\x00", 3)), "+/8A");
}

TEST(PolicyHash, IsBase64OfTheDigest) {
  // Of no bytes.
  EXPECT_EQ(
      PolicyHash("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b"
                 "7852b855"),
      "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
}

TEST(HtmlText, EscapesMarkupAndWhatCannotBeSeen) {
  EXPECT_EQ(HtmlText("<a b=\"c\">'&"), "&lt;a b=&quot;c&quot;&gt;&#39;&amp;");
  EXPECT_EQ(HtmlText("a\x1b\n\xE2\x80\xAE"), "a\\x1b\\n\\u{202e}");
  EXPECT_LT(HtmlText(std::string(100'000, 'x')).size(), 2000u);
  EXPECT_LT(HtmlName(std::string(100'000, 'x')).size(), 400u);
  EXPECT_EQ(HtmlName(""), "(model)");
  EXPECT_EQ(HtmlName("a.b_c"), "a.<wbr>b_<wbr>c");
}

}  // namespace
}  // namespace ttrace::html_text_test
