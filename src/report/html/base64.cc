#include "src/report/html/base64.h"

#include <cstdint>

namespace ttrace {

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group <<= 8;
      if (i + k < bytes.size()) group |= static_cast<uint8_t>(bytes[i + k]);
    }
    const size_t digits = bytes.size() - i < 3 ? bytes.size() - i + 1 : 4;
    for (size_t k = 0; k < 4; ++k) {
      out += k < digits ? kDigits[(group >> (18 - 6 * k)) & 63] : '=';
    }
  }
  return out;
}

}  // namespace ttrace
