// Which rows of the global batch are the same samples.
//
// A row is known by its contents: what the model (or the loop, from its data
// iterator) was fed for it, all tensors of a call together. In each call the
// candidate's rows are looked for among the reference's, whatever order they
// were dealt in, however they were padded and split. Besides rows of the batch
// there are others that grow with it: the nodes and edges of graphs, the
// tokens of sequences that were laid end to end. Each of these is a space of
// its own, found in the same way.
//
// Captures that do not note what was fed (fed_rows.h) show it by the values of
// the root's inputs.
//
// Thread safety: const after FindRows.

#ifndef TTRACE_SRC_EXPERIMENT_ROW_ALIGNMENT_H_
#define TTRACE_SRC_EXPERIMENT_ROW_ALIGNMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/align/fed_rows.h"
#include "src/compare/compare_options.h"
#include "src/compare/row_map.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/side.h"

namespace ttrace {

// Before the name of an argument that is one of a data item's.
inline constexpr char kOfItem[] = "item ";

// What is one index of a dimension of tensors of both runs: a row of the batch,
// a node, a token.
struct RowSpace {
  // Micro-batch -> how many it has, in the order of the global batch.
  using Counts = std::map<int, int64_t>;
  Counts reference;
  Counts candidate;
  int64_t total = 0;
  // Nothing: the candidate's are in the reference's order.
  std::optional<RowMap> map;
  std::vector<FedName> by;  // what tells them apart
};

// A dimension that is as long as the longest row of its micro-batch.
struct PaddedLength {
  RowSpace::Counts reference;  // micro-batch -> length
  RowSpace::Counts candidate;
  int64_t longest = 0;
  bool at_begin = false;  // where padding is
};

// Rows that are fed more often than the reference has them, in place of others.
struct RepeatedRows {
  std::vector<int> ranks;     // sorted
  std::vector<int64_t> rows;  // of the candidate's global batch
};

// An argument that holds values of no row of the reference, or `repeats` those
// of some rows for others, as random numbers that each rank draws alike do.
struct OtherValues {
  std::string name;
  std::vector<int> ranks;  // sorted; of values of no row
  bool repeats = false;
  bool operator==(const OtherValues&) const = default;
};

struct RowsOfCall {
  // The first are the rows of the batch.
  std::vector<RowSpace> spaces;
  // Of which it cannot be told which are which.
  std::vector<RowSpace> untold;
  std::vector<PaddedLength> lengths;
  // Each rank was fed all of the reference's rows: none was dealt.
  bool shared = false;
  // Of the candidate's rows, those that the reference does not have, and how
  // many of them each rank has.
  std::vector<int64_t> foreign;
  std::map<int, int64_t> foreign_of;
  // Where there are some: rows in all, of the candidate and of the reference.
  int64_t fed = 0;
  int64_t fed_in_reference = 0;
  RepeatedRows repeated;
  // All rows are the reference's and all of the reference's are there, some
  // more often: what fills a batch up, or what a loop reads to use a part of.
  bool in_excess = false;
  // Arguments that hold the reference's rows, but not beside those of the
  // others; and those that hold other values beside the reference's rows.
  std::vector<std::string> mixed;
  std::vector<OtherValues> other;
  // Those that count within the batch of their rank, and so hold other values.
  std::vector<std::string> relative;
};

struct RowAlignment {
  std::map<FedCall, RowsOfCall> calls;

  // For a tensor of the candidate, which these are the pieces of.
  CompareOptions OptionsFor(const Side& candidate, const TensorId& id,
                            const TensorPieces& pieces) const;
  const RowsOfCall* Find(const FedCall& call) const;
  // Rows of the candidate in an iteration that the reference does not have, in
  // the first call of the model that has any.
  std::vector<int64_t> Foreign(int iteration) const;
  // Ranks that feed the model the same rows, in the first such call.
  std::vector<int> Repeating(int iteration) const;
  // Whether rows of this iteration are in another order than the reference's.
  bool Reorders(int iteration) const;
};

// What one call was fed on both sides, matched. `is_data`: it is a call for an
// item of data, of which all tensors together are the row.
RowsOfCall MatchCall(const FedRows::Parts& reference,
                     const FedRows::Parts& candidate, bool is_data = false);

// Where the reference has the rows of one micro-batch: a `map` in every space,
// of the micro-batch's rows, `total` of the reference's.
RowsOfCall PlaceRows(const FedRows::Parts& reference, const FedPart& own,
                     bool is_data = false);

// The parts of a call of the model, each with the item that was read for it:
// rows are told apart by all that belongs to them.
FedRows::Parts WithItems(const FedRows& fed, const FedCall& call,
                         const FedRows::Parts& parts);

// In `iterations` or in all. Fails if what is read cannot be.
Result<RowAlignment> FindRows(
    const Side& reference, const Side& candidate,
    const std::optional<IterationRange>& iterations = std::nullopt);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ROW_ALIGNMENT_H_
