// A checksum as text: 16 hexadecimal digits, in lower case.

#ifndef TTRACE_SRC_TRACE_HEX_DIGEST_H_
#define TTRACE_SRC_TRACE_HEX_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ttrace {

inline constexpr size_t kHexDigits = 16;

inline std::string HexDigest(uint64_t digest) {
  std::string text(kHexDigits, '0');
  for (size_t i = kHexDigits; i-- > 0; digest >>= 4) {
    text[i] = "0123456789abcdef"[digest & 15];
  }
  return text;
}

// Whether `text` is what HexDigest(digest) gives.
inline bool IsHexDigest(std::string_view text, uint64_t digest) {
  if (text.size() != kHexDigits) return false;
  for (size_t i = kHexDigits; i-- > 0; digest >>= 4) {
    if (text[i] != "0123456789abcdef"[digest & 15]) return false;
  }
  return true;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_HEX_DIGEST_H_
