// meta.json: what a rank knew when its capture started.

#ifndef TTRACE_SRC_TRACE_RANK_META_H_
#define TTRACE_SRC_TRACE_RANK_META_H_

#include <string>
#include <string_view>

#include "src/trace/writer.h"
#include "ttrace/status.h"

namespace ttrace {

// Fails with kInvalidArgument if the numbers contradict each other: a rank
// outside the world, a mesh whose sizes do not multiply to the world's, a
// coordinate outside the mesh, dimension names that placements cannot spell.
Status CheckRankMeta(const RankMeta& meta);

// REQUIRES: CheckRankMeta(meta) is ok. Fails if adapter_json is no object.
Result<std::string> EncodeRankMeta(const RankMeta& meta);

// Fails with kCorrupt, or kUnsupported for a newer format.
Result<RankMeta> DecodeRankMeta(std::string_view json);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_RANK_META_H_
