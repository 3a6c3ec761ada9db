// The rules that a record obeys, whoever made it: the writer asks before it
// writes, the reader before it believes.

#ifndef TTRACE_SRC_TRACE_INDEX_RECORD_CHECK_H_
#define TTRACE_SRC_TRACE_INDEX_RECORD_CHECK_H_

#include <string>
#include <vector>

#include "src/trace/record_fields.h"
#include "src/trace/writer.h"
#include "ttrace/status.h"

namespace ttrace {

// The first of the rank's grids (RankMeta::MeshOf) that has all mesh dimensions
// named here; "mb" is in each. Fails with kInvalidArgument if none has.
Result<int> FindGrid(const RankMeta& meta, const PlacementMap& placements,
                     const std::vector<std::string>& reduced_over);

// What both say, of a record that has no grid, layout, rows and bytes yet.
RecordFields UnresolvedRecord(const RankMeta& meta, const RecordSpec& spec,
                              const Occurrence& occurrence);

// What follows from a RecordSpec in its rank.
struct SpecFacts {
  int grid = 0;       // RecordFields::grid
  Layout layout;      // with a batch: of its first rows
  int64_t bytes = 0;  // of the values
};
// Fails with kInvalidArgument if anything in `spec` contradicts the mesh, the
// shapes or the range of its fields.
Result<SpecFacts> CheckSpec(const RankMeta& meta, const RecordSpec& spec);

// The record of one occurrence, all but its sequence and where its bytes lie.
// `facts` are those of `spec`. Fails with kInvalidArgument if a field of
// `occurrence` is out of its range, or its rows out of the batch.
Result<RecordFields> MakeRecord(const RankMeta& meta, const RecordSpec& spec,
                                const SpecFacts& facts,
                                const Occurrence& occurrence);

// For a record that was not made of a spec. Sets record.grid, resolves
// record.layout from `global_shape` and sets record.extent.bytes from dtype and
// shape. Fails with kInvalidArgument if anything in the record contradicts the
// mesh, the shapes or the range of its fields.
Status CompleteRecord(const RankMeta& meta, const Shape& global_shape,
                      RecordFields& record);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INDEX_RECORD_CHECK_H_
