// LineReader: the lines of an index, streamed, each followed by enough readable
// bytes for simdjson.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_INDEX_LINE_READER_H_
#define TTRACE_SRC_TRACE_INDEX_LINE_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/trace/file.h"
#include "ttrace/status.h"

namespace ttrace {

class LineReader {
 public:
  explicit LineReader(File file);

  // The next line without its '\n', or nothing at the end. Bytes after the last
  // '\n' are no line: see has_cut_line. A line stays valid until the next call.
  // Fails with kCorrupt for a line longer than kMaxIndexLineBytes.
  Result<std::optional<std::string_view>> Next();

  int64_t line_number() const { return line_number_; }  // of the last, from 1
  // After the end: the file's last line lacks its '\n'.
  bool has_cut_line() const { return begin_ < end_; }

 private:
  File file_;
  std::string buffer_;
  size_t room_;       // bytes of the buffer before its padding
  size_t begin_ = 0;  // unread bytes are [begin_, end_) of the buffer
  size_t end_ = 0;
  int64_t position_ = 0;  // in the file, of the byte at end_
  int64_t line_number_ = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INDEX_LINE_READER_H_
