// One clock for the ranks of a pipeline stage.
//
// Each rank counts its own records, so that the numbers of two ranks say
// nothing of each other: one that holds other experts, or saw no token for one,
// has recorded more or less by the same moment. But most tensors of a stage are
// held by all of its ranks, and in the same order. What the first rank lacks
// therefore happened right after the last tensor before it that both have.
//
// What comes behind the gradients is put in order phase by phase: a rank that
// makes its optimizer's step again while it measures records the states last,
// behind a gradient norm that it would otherwise have recorded after them.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_EXPERIMENT_COMMON_CLOCK_H_
#define TTRACE_SRC_EXPERIMENT_COMMON_CLOCK_H_

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "src/align/catalog.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

class CommonClock {
 public:
  // Of the tensors of one leg.
  explicit CommonClock(const std::map<TensorId, TensorPieces>& tensors);

  // The sequence number of the stage's first rank at that moment; -1 before
  // anything that both have. A record of the first rank has its own.
  int64_t At(const Record& record) const;

 private:
  // Sequence numbers of a tensor's first records: of the rank, and the largest
  // of the first rank's until then.
  struct Anchor {
    uint32_t own = 0;
    uint32_t first = 0;
  };
  // `count` anchors of consecutive numbers on both: ranks that do the same have
  // one run, of however many tensors.
  struct Run {
    uint32_t own = 0;
    uint32_t first = 0;
    uint32_t count = 0;
  };
  static std::vector<Run> RunsOf(std::vector<Anchor> anchors);

  // What shares anchors, of a rank.
  struct Stretch {
    int iteration = 0;
    int phase = 0;  // 0: all up to the reduced gradients, which take turns

    auto operator<=>(const Stretch&) const = default;
  };
  static Stretch StretchOf(const TensorId& id);

  std::vector<bool> is_first_;  // by rank: whether it is its stage's first
  std::map<Stretch, std::vector<std::vector<Run>>> runs_;  // by rank; ascending
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_COMMON_CLOCK_H_
