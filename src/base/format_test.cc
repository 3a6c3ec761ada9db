#include "src/base/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ttrace::format_test {
namespace {

using ::testing::ElementsAre;

TEST(FormatCount, SeparatesThousands) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1820), "1,820");
  EXPECT_EQ(FormatCount(-1820), "-1,820");
  EXPECT_EQ(FormatCount(-182), "-182");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(std::numeric_limits<int64_t>::min()),
            "-9,223,372,036,854,775,808");
}

TEST(FormatError, HasTwoSignificantDigits) {
  EXPECT_EQ(FormatError(0.6749), "6.7e-01");
  EXPECT_EQ(FormatError(0), "0");
  EXPECT_EQ(FormatError(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FormatError(std::nan("")), "-");
}

TEST(FormatHeadroom, HasTwoSignificantDigitsAtEverySize) {
  EXPECT_EQ(FormatHeadroom(0), "0");
  EXPECT_EQ(FormatHeadroom(0.416), "0.42");
  EXPECT_EQ(FormatHeadroom(1.0), "1");
  EXPECT_EQ(FormatHeadroom(9.96), "10");
  EXPECT_EQ(FormatHeadroom(56.2), "56");
  EXPECT_EQ(FormatHeadroom(1234), "1,200");
  EXPECT_EQ(FormatHeadroom(63123), "63,000");
  EXPECT_EQ(FormatHeadroom(3195238), "3.2e+06");
  EXPECT_EQ(FormatHeadroom(4e-9), "4.0e-09");
  EXPECT_EQ(FormatHeadroom(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FormatHeadroom(std::nan("")), "-");
}

TEST(FormatBytes, NeverShowsAThousandOfAUnit) {
  EXPECT_EQ(FormatBytes(12), "12 B");
  EXPECT_EQ(FormatBytes(999'999), "1.0 MB");
  EXPECT_EQ(FormatBytes(3.42e9), "3.4 GB");
  EXPECT_EQ(FormatBytes(5.12e8), "512 MB");
}

TEST(FormatSeconds, DropsTheTenthsOfLongTimes) {
  EXPECT_EQ(FormatSeconds(1.24), "1.2 s");
  EXPECT_EQ(FormatSeconds(240.4), "240 s");
}

TEST(FormatRanks, JoinsNeighboursAndNamesAll) {
  EXPECT_EQ(FormatRanks({3}, 8), "rank 3");
  EXPECT_EQ(FormatRanks({0, 1, 2, 7}, 8), "ranks 0-2, 7");
  EXPECT_EQ(FormatRanks({0, 1}, 2), "all 2 ranks");
  EXPECT_EQ(FormatRanks({}, 4), "all 4 ranks");
  EXPECT_EQ(FormatRanks({}, 0), "all ranks");
  EXPECT_EQ(FormatRanks({0}, 1), "rank 0");
  EXPECT_EQ(FormatRanks(std::vector<int64_t>{0, 1, 5}, 0), "ranks 0-1, 5");
}

TEST(FormatRanks, CutsALongListAndSaysHowLongItIs) {
  std::vector<int> even;
  for (int i = 0; i < 1000; ++i) even.push_back(2 * i);
  EXPECT_EQ(FormatRanks(even, 2000),
            "ranks 0, 2, 4, 6, 8, 10, 12, 14, ... (1,000 ranks)");
}

TEST(Printable, ShowsWhatATerminalWouldActOn) {
  EXPECT_EQ(Printable("a\x1b[2J"), "a\\x1b[2J");
  EXPECT_EQ(Printable("a\nb\rc\td"), "a\\nb\\rc\\td");
  EXPECT_EQ(Printable("\x7f"), "\\x7f");
  EXPECT_EQ(Printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\u{9b}");        // C1 CSI
  EXPECT_EQ(Printable("\xe2\x80\xae"), "\\u{202e}");  // right to left
  EXPECT_EQ(Printable("\xe2\x80\x8b"), "\\u{200b}");  // zero width
  EXPECT_EQ(Printable("\xef\xbb\xbf"), "\\u{feff}");  // byte order mark
}

TEST(Printable, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(Printable("\xff"), "\\xff");
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82");  // cut short
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");  // overlong
  EXPECT_EQ(Printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Printable, LeavesReadableTextAlone) {
  const std::string text = "runs/\xe5\xae\x9f\xe9\xa8\x93 \xc3\xa9 \"q\" \\";
  EXPECT_EQ(Printable(text), text);
}

TEST(ShortenMiddle, KeepsBothEnds) {
  EXPECT_EQ(ShortenMiddle("decoder.layers.10.mlp", 21),
            "decoder.layers.10.mlp");
  EXPECT_EQ(ShortenMiddle("decoder.layers.10.mlp", 11), "deco....mlp");
  EXPECT_EQ(ShortenMiddle("decoder", 2), "de");
}

TEST(ShortenMiddle, CutsBetweenCodePoints) {
  const std::string text = "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9";
  EXPECT_EQ(ShortenMiddle(text, 5), "\xc3\xa9...\xc3\xa9");
}

TEST(Wrap, BreaksAtSpaces) {
  EXPECT_THAT(Wrap("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(Wrap("one two three", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(Wrap("", 8), ElementsAre(""));
}

TEST(Wrap, BreaksAWordThatFitsOnNoLine) {
  EXPECT_THAT(Wrap("a bcdefgh i", 3), ElementsAre("a", "bcd", "efg", "h i"));
}

}  // namespace
}  // namespace ttrace::format_test
