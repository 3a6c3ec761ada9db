// One line of a trace's index: a piece of a tensor, what it is and where it
// lies, in the logical tensor and in the files. This is a record by itself, as
// it is written and decoded; many of them are a RecordTable.

#ifndef TTRACE_SRC_TRACE_RECORD_FIELDS_H_
#define TTRACE_SRC_TRACE_RECORD_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/trace/payload.h"
#include "ttrace/box.h"
#include "ttrace/dtype.h"
#include "ttrace/layout.h"
#include "ttrace/leg.h"
#include "ttrace/mesh.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// The declared factor between what was recorded and the logical value:
// logical = recorded * numerator / denominator. A formula of the topology,
// never a number read from the code under test.
struct Scale {
  int64_t numerator = 1;
  int64_t denominator = 1;
  bool operator==(const Scale&) const = default;
  double value() const {
    return static_cast<double>(numerator) / static_cast<double>(denominator);
  }
};

// Rows that a router chose: dimension 0 are tokens that it sent to one expert.
//
// Which tokens they are is not recorded. It follows from the routing maps of
// all ranks they came from, and so is what was meant, not what the code that
// moved them made of it (align/routed_rows.h). The number of a token in the
// logical tensor is row * S + s, of row `row` of the global batch at place `s`
// of a sequence of S.
struct RoutedRows {
  std::string by;     // fqn of the router
  std::string arg;    // which of its outputs is the map
  int expert = 0;     // the map's column
  std::string group;  // a note "expert_group" of this rank names the ranks
  bool operator==(const RoutedRows&) const = default;
};

// What is the same for every occurrence of a recorded tensor in one rank.
// Built once per (module, argument, shape) by the capture front end.
struct RecordSpec {
  std::string fqn;
  Role role = Role::kOutput;
  std::string arg;
  DType dtype = DType::kF32;
  Shape local_shape;
  PlacementMap placements;
  // The whole logical tensor. With batch_dim >= 0, its size along that
  // dimension is the iteration's global batch.
  Shape global_shape;
  int batch_dim = -1;
  // The part of what the other placements give that `local_shape` is: with a
  // RaggedShard, and only then. Without one local_shape is all of it.
  std::optional<Box> box;
  // global_shape[0] is then the number of all tokens, and there is no batch
  // dimension.
  std::optional<RoutedRows> routed;
  Scale scale;
  // Mesh dimensions over which this value should already have been summed by
  // the code under test (a row-parallel output over tp, a reduced gradient over
  // dp and cp). Evidence for a diagnosis; never used to align or to merge.
  std::vector<std::string> reduced_over;
  bool operator==(const RecordSpec&) const = default;
};

// What differs between occurrences.
struct Occurrence {
  Leg leg;
  int iteration = 0;
  int call = 0;
  Pass pass = Pass::kForward;
  // Index of the micro-batch in the iteration's global batch, the same number
  // for the same rows in every topology with equal micro-batch size; -1: none.
  int micro_batch = -1;
  int64_t row_begin = 0;  // first row of the global batch, if batch_dim >= 0
  // When it was recorded: microseconds of the machine's monotonic clock, as
  // RecordTimes::Now gives them; -1: not known.
  int64_t time_us = -1;
  // While it is held (TraceWriter::Hold), in which of the iteration's batches
  // its rows are. Not in the trace.
  int batch = 0;
};

// Where the bytes are: file `segment` of the rank's folder.
struct Extent {
  int segment = 0;
  int64_t offset = 0;  // from the start of the file
  int64_t bytes = 0;
  uint64_t xxh3 = 0;
  bool operator==(const Extent&) const = default;
};

// Sequences that a table of records has room for: that of a rank's last record
// is less than this.
inline constexpr int64_t kMaxSequence = 0xffffffff;

// `layout` agrees with `local_shape`, and the extent lies inside its file. Of
// routed rows it says how many they are, from 0 on: which ones, a Catalog finds
// out.
struct RecordFields {
  int rank = 0;
  int64_t sequence = 0;  // execution order in its rank, over all legs
  TensorId id;
  Leg leg;
  int micro_batch = -1;
  DType dtype = DType::kF32;
  Shape local_shape;
  PlacementMap placements;
  // Which of its rank's grids the names of placements and reduced_over are of:
  // a number for Trace::mesh and Trace::coordinate.
  int grid = 0;
  Scale scale;
  std::vector<std::string> reduced_over;
  std::optional<BatchRows> rows;
  std::optional<Box> box;
  std::optional<RoutedRows> routed;
  Layout layout;
  Extent extent;
  Payload payload;  // what the extent holds

  bool holds_values() const {
    return std::holds_alternative<KeptValues>(payload);
  }
  std::optional<int64_t> same_as() const { return SameAs(payload); }
  // What it has in common with other occurrences of its tensor, and the rest.
  RecordSpec spec() const;
  Occurrence occurrence() const;
  // Its place in Trace::records(), copies included; -1: it was read from none.
  int64_t number = -1;
  // Of its occurrence, while it is written. A trace keeps it in notes.
  int64_t time_us = -1;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_RECORD_FIELDS_H_
