// What the dimensions of a tensor count, read from what its forward was fed.
//
// Capture knows of a dimension no more than its size. Which sizes of a
// micro-batch are its rows, its nodes or tokens, and which are the length that
// its rows were padded to, is known once the rows of both runs were matched: a
// dimension counts what it is as large as in every micro-batch of both runs.
// Padding is a part of the dimension that one run has and the other has not.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_EXPERIMENT_FED_DIMENSIONS_H_
#define TTRACE_SRC_EXPERIMENT_FED_DIMENSIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/experiment/row_alignment.h"
#include "src/experiment/side.h"

namespace ttrace {

struct DimReading {
  const RowSpace* space = nullptr;       // null: no rows
  int64_t each = 1;                      // indices a row
  const PaddedLength* length = nullptr;  // null: not padded
  bool untold = false;                   // it counts what cannot be told apart
  // With both: rows, each of the length, one after the other.
};

using ShapeReading = std::vector<DimReading>;

class FedDimensions {
 public:
  // The alignment must outlive this.
  FedDimensions(const Side& reference, const Side& candidate,
                const RowAlignment& rows)
      : reference_(reference), candidate_(candidate), rows_(rows) {}

  // Whether the rows that capture stated are those of the batch.
  bool AreAsRecorded(const TensorPieces& reference,
                     const TensorPieces& candidate) const;
  // Nothing where what was fed does not explain the shapes of all pieces.
  std::optional<ShapeReading> Read(const TensorPieces& reference,
                                   const TensorPieces& candidate) const;

  // Whether rows of the call are of several lengths.
  bool HasLengths(const TensorPieces& candidate) const {
    const RowsOfCall* call = CallOf(candidate);
    return call != nullptr && !call->lengths.empty();
  }

  // Whether its rows are items of a list, which may be of any lengths.
  bool HasListedRows(const TensorPieces& candidate) const;

  static bool IsUntold(const ShapeReading& shape);
  static bool IsPadded(const ShapeReading& shape);
  static bool HasRows(const ShapeReading& shape);
  // Gives a record the layout that the reading says.
  static void Apply(const ShapeReading& shape, bool of_reference,
                    RecordFields* record);

 private:
  const RowsOfCall* CallOf(const TensorPieces& candidate) const;
  std::optional<DimReading> ReadDim(const RowsOfCall& call,
                                    const TensorPieces& reference,
                                    const TensorPieces& candidate,
                                    size_t dim) const;

  const Side& reference_;
  const Side& candidate_;
  const RowAlignment& rows_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_FED_DIMENSIONS_H_
