// The rules that a record obeys, whoever made it: the writer asks before it
// writes, the reader before it believes.

#ifndef TTRACE_SRC_TRACE_RECORD_CHECK_H_
#define TTRACE_SRC_TRACE_RECORD_CHECK_H_

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

// Sets record.grid, resolves record.layout from `global_shape` and sets
// record.extent.bytes from dtype and shape. Fails with kInvalidArgument if
// anything in the record contradicts the mesh, the shapes or the range of its
// fields.
Status CompleteRecord(const RankMeta& meta, const Shape& global_shape,
                      RecordFields& record);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_RECORD_CHECK_H_
