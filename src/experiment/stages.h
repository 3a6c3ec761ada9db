// Stages: the pipeline stage of each rank of a trace.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_EXPERIMENT_STAGES_H_
#define TTRACE_SRC_EXPERIMENT_STAGES_H_

#include <cstddef>
#include <vector>

#include "src/trace/reader.h"

namespace ttrace {

class Stages {
 public:
  explicit Stages(const Trace& trace)
      : of_rank_(static_cast<size_t>(trace.world_size())) {
    const int pp = trace.mesh().Find("pp");
    if (pp < 0) return;
    for (const RankTrace& rank : trace.ranks()) {
      of_rank_[static_cast<size_t>(rank.meta.rank)] =
          rank.meta.coordinate[static_cast<size_t>(pp)];
    }
  }

  // 0 for all where there are no stages.
  // REQUIRES: the trace has this rank.
  int Of(int rank) const { return of_rank_[static_cast<size_t>(rank)]; }
  size_t rank_count() const { return of_rank_.size(); }

 private:
  std::vector<int> of_rank_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_STAGES_H_
