// Which rows of one list are which of another, by what tells them apart.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_MATCH_ROWS_H_
#define TTRACE_SRC_EXPERIMENT_MATCH_ROWS_H_

#include <cstdint>
#include <vector>

#include "src/numeric/row_digests.h"

namespace ttrace {

// What rows are known by. Equal keys: the same row, as far as can be told.
using RowKeys = std::vector<uint64_t>;

// The place in `theirs` of each of `own`, each once. Rows of equal keys are
// told apart by the rows that follow them (a token by its sentence, a node by
// its graph). Where these are equal, too, the one behind the last row's place
// comes first, then the others in their order.
// REQUIRES: Contains(theirs, own).
std::vector<int64_t> MatchRows(const RowKeys& theirs, const RowKeys& own);

// Whether `theirs` holds each key at least as often as `own` does.
bool Contains(const RowKeys& theirs, const RowKeys& own);

// How many of `own` are in `theirs`, however often.
size_t CountFound(const RowKeys& theirs, const RowKeys& own);

// Whether both hold the same keys, each as often.
inline bool HoldTheSame(const RowKeys& a, const RowKeys& b) {
  return a.size() == b.size() && Contains(a, b);
}

// Of each row a key of all of its keys.
RowKeys Joined(const RowKeys& a, const RowKeys& b);

int64_t CountDistinct(const RowKeys& keys);

// Keys of rows that may be padded, for both lists alike: rows have one key if
// they are equal where neither is padded, at the end (or at the beginning).
// `cut`: also if one has a token more, as where all but the last are fed.
struct Padding {
  bool at_begin = false;
  bool cut = false;
  bool operator==(const Padding&) const = default;
};
struct PaddedKeys {
  RowKeys theirs;
  RowKeys own;
};
PaddedKeys KeysWithoutPadding(const RowDigests& theirs, const RowDigests& own,
                              Padding padding);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_MATCH_ROWS_H_
