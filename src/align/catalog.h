// Catalog: a trace's records, grouped by what they are.
//
// A TensorPieces is one logical tensor of one leg: all its local pieces, sorted
// by (rank, micro-batch, sequence), whatever the order of files.
//
// A sum over micro-batches is left out if a rank ended before it had completed
// the iteration: terms are missing, and nothing in the others shows it.
//
// Rows that a router chose are given their place (routed_rows.h): routing maps
// are the only tensors that are read here. So are rows of micro-batches that
// are not all of one size, by what all ranks noted of theirs (fed_rows.h).
//
// Thread safety: const after construction and Reread.

#ifndef TTRACE_SRC_ALIGN_CATALOG_H_
#define TTRACE_SRC_ALIGN_CATALOG_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/align/fed_rows.h"
#include "src/align/routed_rows.h"
#include "src/trace/reader.h"
#include "src/trace/record_list.h"
#include "ttrace/layout.h"
#include "ttrace/leg.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

struct TensorPieces {
  const Trace* trace = nullptr;
  RecordList pieces;           // never empty
  int64_t first_sequence = 0;  // smallest of its pieces
  int first_rank = 0;          // the rank of that piece
  // Of rows that a router chose: all tokens that it sent to the expert. Null:
  // there are no such rows, or `unplaced` says why they have no place.
  std::shared_ptr<const DimLayout> tokens;
  // Why the pieces do not lie where their layouts say: nothing compares or
  // reads them by place.
  std::shared_ptr<const RoutingTrouble> unplaced;

  // Of the whole logical tensor, the batch dimension included.
  Shape global_shape() const { return pieces.front().layout().global_shape(); }

  // Elements that its pieces hold, copies and terms counted each. In the files,
  // unlike those that a shape declares.
  int64_t elements_held() const;
  // Whether there are any, and enough for the declared shape. What is not whole
  // has gaps; nothing loops over its declared size or makes room for it.
  bool MayBeWhole() const;
};

class Catalog {
 public:
  explicit Catalog(std::shared_ptr<const Trace> trace);

  const Trace& trace() const { return *trace_; }
  // Legs present, sorted.
  const std::vector<Leg>& legs() const { return legs_; }
  bool HasLeg(const Leg& leg) const;
  // All tensors of a leg; empty for a leg that is not there.
  const std::map<TensorId, TensorPieces>& tensors(const Leg& leg) const;
  // One tensor, or nullptr.
  const TensorPieces* Find(const Leg& leg, const TensorId& id) const;
  // Replaces the records of a tensor, in every leg, by changed copies.
  void Reread(const TensorId& id,
              const std::function<void(RecordFields*)>& change);
  // What the forwards of its model were fed.
  const FedRows& fed_rows() const { return fed_rows_; }
  // What was left out, by its first rank that did not complete it.
  const std::map<TensorId, int>& unfinished_sums() const {
    return unfinished_sums_;
  }

 private:
  void PlaceRoutedRows();
  void PlaceUnevenRows();

  std::shared_ptr<const Trace> trace_;
  FedRows fed_rows_;
  std::vector<Leg> legs_;
  std::map<Leg, std::map<TensorId, TensorPieces>> tensors_;
  std::map<TensorId, int> unfinished_sums_;
  RecordTable reread_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_ALIGN_CATALOG_H_
