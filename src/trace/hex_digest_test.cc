// All bytes at all places: 16 digits in lower case are a number, nothing else.

#include "src/trace/hex_digest.h"

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <random>
#include <string>

namespace ttrace::hex_digest_test {
namespace {

std::string Printed(uint64_t digest) {
  std::string text(kHexDigits + 1, '\0');
  std::snprintf(text.data(), text.size(), "%016" PRIx64, digest);
  text.pop_back();
  return text;
}

TEST(HexDigestTest, IsWhatPrintfMakesOfItAndIsReadBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    // Of random length, so that high digits are often 0.
    const uint64_t digest = random() >> (i % 64);
    EXPECT_EQ(HexDigest(digest), Printed(digest));
    EXPECT_EQ(ParseHexDigest(Printed(digest)), digest);
    EXPECT_TRUE(IsHexDigest(Printed(digest), digest));
    EXPECT_FALSE(IsHexDigest(Printed(digest), digest ^ 1));
  }
}

TEST(HexDigestTest, NoOtherByteIsADigitAnywhere) {
  const std::string right = "0123456789abcdef";
  for (size_t at = 0; at < right.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string text = right;
      text[at] = static_cast<char>(byte);
      const bool is_digit =
          byte != 0 && right.find(text[at]) != std::string::npos;
      EXPECT_EQ(ParseHexDigest(text).has_value(), is_digit)
          << "byte " << byte << " at " << at;
    }
  }
  EXPECT_FALSE(ParseHexDigest(right.substr(1)));
  EXPECT_FALSE(ParseHexDigest(right + "0"));
  EXPECT_FALSE(ParseHexDigest(""));
}

}  // namespace
}  // namespace ttrace::hex_digest_test
