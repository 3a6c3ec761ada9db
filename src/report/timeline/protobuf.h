// ProtoMessage: the wire format of Protocol Buffers, written field by field
// (https://protobuf.dev/programming-guides/encoding/). A library that writes a
// dozen fields of somebody else's schema would be the largest dependency.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_REPORT_TIMELINE_PROTOBUF_H_
#define TTRACE_SRC_REPORT_TIMELINE_PROTOBUF_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace ttrace {

class ProtoMessage {
 public:
  // Of an unsigned or enum field, and of a signed one that is not negative.
  void Varint(uint32_t field, uint64_t value) {
    Tag(field, 0);
    Raw(value);
  }
  void Fixed64(uint32_t field, uint64_t value) {
    Tag(field, 1);
    for (int byte = 0; byte < 8; ++byte) {
      bytes_ += static_cast<char>(value >> (8 * byte) & 0xff);
    }
  }
  void Double(uint32_t field, double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    Fixed64(field, bits);
  }
  // A string, which is UTF-8, or a message.
  void Bytes(uint32_t field, std::string_view bytes) {
    Tag(field, 2);
    Raw(bytes.size());
    bytes_ += bytes;
  }
  void Message(uint32_t field, const ProtoMessage& message) {
    Bytes(field, message.bytes_);
  }

  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  void Tag(uint32_t field, uint32_t wire_type) {
    Raw(uint64_t{field} << 3 | wire_type);
  }
  void Raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_TIMELINE_PROTOBUF_H_
