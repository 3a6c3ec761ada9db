// ErrorPattern: where in a tensor its error lies, for a picture of it.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_LOCALIZE_ERROR_PATTERN_H_
#define TTRACE_SRC_LOCALIZE_ERROR_PATTERN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ttrace/leg.h"

namespace ttrace {

struct ErrorPattern {
  // What one rank holds, or some that measured alike.
  struct Piece {
    std::vector<int> ranks;
    int micro_batch = -1;
    std::string box;  // which part of the tensor, in words
    double err = 0;   // normwise, relative to the reference's same part
    int64_t mismatched = 0;
    int64_t elements = 0;
  };

  Leg leg;  // that was looked at
  // Tensor dimensions whose indices rows and columns are, -1 for one of a
  // single block; all others are taken together.
  int row_dim = -1;
  int column_dim = -1;
  // First index of each block along the dimension, and the end of the last.
  std::vector<int64_t> rows;
  std::vector<int64_t> columns;
  // Of each block, row by row: the rms of its errors over that of the
  // reference's elements in all blocks. Infinity where an element is finite in
  // the reference alone, or there is nothing but zeros in the reference.
  std::vector<double> errors;
  bool sampled = false;       // of a large tensor, some rows of each block
  std::vector<Piece> pieces;  // the worst, sorted by rank
  int64_t pieces_of = 0;      // how many there are
};

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_ERROR_PATTERN_H_
