// A checksum as text: 16 hexadecimal digits, in lower case.
//
// Each line of an index has two of them, so that eight digits are made or read
// at a time, as bytes of one word, the first digit in its highest byte.

#ifndef TTRACE_SRC_TRACE_HEX_DIGEST_H_
#define TTRACE_SRC_TRACE_HEX_DIGEST_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

static_assert(std::endian::native == std::endian::little);

inline constexpr size_t kHexDigits = 16;

namespace hex_digest {

inline constexpr uint64_t kOnes = 0x0101010101010101;  // 1 in each byte

// Numbers below 16, a byte each, as digits.
inline uint64_t TextOf(uint64_t nibbles) {
  const uint64_t letters = ((nibbles + 6 * kOnes) >> 4) & kOnes;
  return nibbles + '0' * kOnes + letters * ('a' - '0' - 10);
}

inline uint64_t NibblesOf(uint32_t value) {
  uint64_t x = value;
  x = (x << 16 | x) & 0x0000ffff0000ffff;
  x = (x << 8 | x) & 0x00ff00ff00ff00ff;
  return (x << 4 | x) & 0x0f0f0f0f0f0f0f0f;
}

inline std::optional<uint32_t> Parse8(const char* digits) {
  uint64_t text = 0;
  std::memcpy(&text, digits, sizeof(text));
  text = __builtin_bswap64(text);
  uint64_t x = (text & 15 * kOnes) + 9 * ((text >> 6) & kOnes);
  // Whatever is no digit in lower case comes out as another text.
  if ((x & ~(15 * kOnes)) != 0 || TextOf(x) != text) return std::nullopt;
  x = (x >> 4 | x) & 0x00ff00ff00ff00ff;
  x = (x >> 8 | x) & 0x0000ffff0000ffff;
  return static_cast<uint32_t>(x >> 16 | x);
}

inline void Write8(uint32_t value, char* digits) {
  const uint64_t text = __builtin_bswap64(TextOf(NibblesOf(value)));
  std::memcpy(digits, &text, sizeof(text));
}

}  // namespace hex_digest

inline std::string HexDigest(uint64_t digest) {
  std::string text(kHexDigits, '0');
  hex_digest::Write8(static_cast<uint32_t>(digest >> 32), text.data());
  hex_digest::Write8(static_cast<uint32_t>(digest), text.data() + 8);
  return text;
}

// What HexDigest gives this text for; none if there is nothing.
inline std::optional<uint64_t> ParseHexDigest(std::string_view text) {
  if (text.size() != kHexDigits) return std::nullopt;
  const auto high = hex_digest::Parse8(text.data());
  const auto low = hex_digest::Parse8(text.data() + 8);
  if (!high || !low) return std::nullopt;
  return uint64_t{*high} << 32 | *low;
}

// Whether `text` is what HexDigest(digest) gives.
inline bool IsHexDigest(std::string_view text, uint64_t digest) {
  return ParseHexDigest(text) == digest;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_HEX_DIGEST_H_
