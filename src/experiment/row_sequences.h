// What rows are known by in one call: each tensor along each of its first two
// dimensions, of both runs, and which of these count the same.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_ROW_SEQUENCES_H_
#define TTRACE_SRC_EXPERIMENT_ROW_SEQUENCES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/align/fed_rows.h"
#include "src/experiment/match_rows.h"
#include "src/experiment/row_alignment.h"

namespace ttrace {

// One tensor along one dimension, of all micro-batches one after the other.
struct RowSequence {
  FedName name;
  RowSpace::Counts reference;
  RowSpace::Counts candidate;
  RowKeys theirs;
  RowKeys own;
  RowSpace::Counts reference_width;
  RowSpace::Counts candidate_width;
  bool is_padded = false;   // rows are of several lengths
  Padding padding;          // with which they match
  bool matches = false;     // both hold the same rows, in whatever order
  bool is_relative = true;  // all parts are

  bool by_rows() const { return name.second <= 0; }
  // Other rows in it are other data. A list may be anything.
  bool names_rows() const { return name.second == 0 && !is_relative; }
};

// Whether the candidate's rows are the reference's: all of them, or of a part
// of the candidate some.
using AreTheirs = bool (*)(const RowKeys& theirs, const RowKeys& own);

// Sequences that count the same.
struct RowGroup {
  std::vector<RowSequence> sequences;

  bool matches() const {
    return std::any_of(sequences.begin(), sequences.end(),
                       [](const RowSequence& s) { return s.matches; });
  }
  bool by_rows() const {
    return std::any_of(
        sequences.begin(), sequences.end(),
        [](const RowSequence& s) { return s.matches && s.by_rows(); });
  }
  // Of the reference's rows: a few of a rank may have other labels each, which
  // say nothing of whose rows they are.
  int64_t most_distinct() const {
    int64_t most = 0;
    for (const RowSequence& s : sequences) {
      if (s.matches) most = std::max(most, CountDistinct(s.theirs));
    }
    return most;
  }
  // A mask or a class says nothing of whose it is.
  bool tells_rows() const {
    const auto rows = static_cast<int64_t>(sequences.front().theirs.size());
    return 2 * most_distinct() > rows;
  }
};

// Whether it is of the item that was read for the call, and no argument.
bool IsOfItem(const FedName& name);

// The first counts the rows of the batch, as far as can be told.
// REQUIRES: `candidate` is not empty.
std::vector<RowGroup> GroupSequences(const FedRows::Parts& reference,
                                     const FedRows::Parts& candidate,
                                     AreTheirs are_theirs);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ROW_SEQUENCES_H_
