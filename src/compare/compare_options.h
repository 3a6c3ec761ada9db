// How a comparison is made: what is summed, scaled and permuted first, and what
// earlier comparisons of the same pieces left to be used again.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_COMPARE_COMPARE_OPTIONS_H_
#define TTRACE_SRC_COMPARE_COMPARE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

class GroupedOnce;
class RecordCache;
struct RowMap;

struct CompareOptions {
  // Treat these mesh dimensions of the candidate as Partial although they were
  // declared Replicate: the question "is the reference their sum?". Pieces that
  // differ only in these coordinates (and have equal layouts) are summed.
  std::vector<std::string> sum_over;
  double extra_scale = 1;        // applied to the candidate as well (mean)
  const RowMap* rows = nullptr;  // not owned; identity if null
  // c of ErrorStats::max_elem, the same for all comparisons whose maxima are
  // compared with each other: the rms of the reference. 0: not measured.
  double element_scale = 0;
  int64_t tile_elements = 1 << 16;  // upper bound of a tile
  // Of the tensor that is measured (record_cache.h), so that what an earlier
  // comparison read is not read again. Not owned; null: none.
  RecordCache* cache = nullptr;
  // What the instances of both sides are taken from, where several comparisons
  // are made of the same pieces (grouped_once.h). Not owned; null: they are
  // grouped for this one.
  GroupedOnce* grouped = nullptr;
  // TensorComparison::instances as JoinEqualCopies makes them, without room for
  // each copy in between.
  bool join_copies = false;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARE_OPTIONS_H_
