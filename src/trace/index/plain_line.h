// The lines that an index mostly consists of, in the very form that our writer
// gives them, read without a parser: of two lines in three of a large index
// nothing but a few numbers is new.
//
// Whatever differs from that form (an escape, a byte that is not ASCII, a key
// more, another order, a number of more than 18 digits) is not read here: it
// may be right all the same, and the IndexLineDecoder says so.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_TRACE_INDEX_PLAIN_LINE_H_
#define TTRACE_SRC_TRACE_INDEX_PLAIN_LINE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace ttrace {

// Of a record that holds its values, or whose values are an earlier one's.
// Nothing but the form was checked: numbers may be out of range and names
// unknown. Texts lie in the line.
struct PlainRecordLine {
  int64_t sequence = 0;
  int64_t spec = 0;
  std::string_view leg;
  int64_t iteration = 0;
  int64_t call = 0;
  std::string_view pass;
  int64_t micro_batch = 0;
  std::optional<int64_t> row;
  std::optional<int64_t> same_as;
  int64_t segment = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  uint64_t xxh3 = 0;
};

struct PlainSpecLine {
  int64_t number = 0;
  std::string_view fqn;
  // All that follows, up to the chain. Lines that agree in it say the same of
  // their specs but for the two above, or are no lines.
  std::string_view rest;
};

// A line without its '\n', of an index whose lines end with their chain.
std::optional<PlainRecordLine> ReadPlainRecordLine(std::string_view line);
std::optional<PlainSpecLine> ReadPlainSpecLine(std::string_view line);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INDEX_PLAIN_LINE_H_
