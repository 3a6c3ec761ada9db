#include "src/trace/index/line_reader.h"

#include <simdjson.h>

#include <cstring>
#include <span>
#include <utility>

#include "src/trace/format.h"

namespace ttrace {

// Most indices are small; the buffer grows to this for long lines and chunks.
constexpr size_t kFirstBytes = 64 * 1024;
constexpr size_t kLastBytes = 2 * kMaxIndexLineBytes;

LineReader::LineReader(File file)
    : file_(std::move(file)),
      buffer_(kFirstBytes + simdjson::SIMDJSON_PADDING, '\0'),
      room_(kFirstBytes) {}

Result<std::optional<std::string_view>> LineReader::Next() {
  size_t searched = begin_;
  while (true) {
    const void* found =
        std::memchr(buffer_.data() + searched, '\n', end_ - searched);
    if (found != nullptr) {
      const auto at =
          static_cast<size_t>(static_cast<const char*>(found) - buffer_.data());
      const std::string_view line(buffer_.data() + begin_, at - begin_);
      begin_ = at + 1;
      ++line_number_;
      return std::optional(line);
    }
    if (end_ - begin_ > kMaxIndexLineBytes) {
      ++line_number_;
      return Error(ErrorCode::kCorrupt, "longer than any line is written");
    }
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    searched = end_;
    if (2 * end_ >= room_ && room_ < kLastBytes) {
      room_ *= 2;
      buffer_.resize(room_ + simdjson::SIMDJSON_PADDING);
    }
    const std::span<char> room(buffer_.data() + end_, room_ - end_);
    TTRACE_ASSIGN_OR_RETURN(
        const size_t got,
        file_.ReadAt(std::as_writable_bytes(room), position_));
    if (got == 0) return std::optional<std::string_view>();
    end_ += got;
    position_ += static_cast<int64_t>(got);
  }
}

}  // namespace ttrace
