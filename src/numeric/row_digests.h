// By what a row of a batch is known again: digests of its bytes.
//
// Runs pad rows to the longest of the batch that they are in, so that one row
// may be of several lengths. What is left of it without the elements that it
// ends or begins with over and over again is the same, or is all of a row that
// was not padded.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_NUMERIC_ROW_DIGESTS_H_
#define TTRACE_SRC_NUMERIC_ROW_DIGESTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ttrace {

struct RowDigests {
  std::vector<uint64_t> whole;
  // Without the run of equal elements at the end, and at the beginning.
  std::vector<uint64_t> without_end;
  std::vector<uint64_t> without_begin;
  // And without the element next to that run: a decoder is fed all tokens but
  // the last, which is one of a row as long as its batch, and else padding.
  std::vector<uint64_t> cut_end;
  std::vector<uint64_t> cut_begin;
};

// XXH3 of each of the `rows` rows of equal size that `bytes` are, and of what
// is left of it. The result depends on bytes alone: 0.0 and -0.0 differ.
// REQUIRES: rows > 0 divides bytes.size(), and itemsize > 0 a row.
RowDigests DigestRows(std::span<const std::byte> bytes, size_t rows,
                      size_t itemsize);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_ROW_DIGESTS_H_
