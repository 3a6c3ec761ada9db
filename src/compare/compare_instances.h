// Compares what two instances share, tile by tile.

#ifndef TTRACE_SRC_COMPARE_COMPARE_INSTANCES_H_
#define TTRACE_SRC_COMPARE_COMPARE_INSTANCES_H_

#include <cstdint>

#include "src/compare/error_sums.h"
#include "src/compare/instances.h"
#include "src/compare/tile_reader.h"
#include "ttrace/status.h"

namespace ttrace {

// An instance and where it lies.
struct PlacedInstance {
  const Instance& instance;
  const Layout& layout;
};

// Not thread-safe: one per thread.
class InstanceComparer {
 public:
  // `element_scale`: CompareOptions.
  explicit InstanceComparer(int64_t tile_elements, double element_scale = 0);

  // Adds the statistics of the shared elements to `sums`. Given one instance
  // twice, reads it once. `within`: see ForEachTile.
  // REQUIRES: equal global shapes.
  Status Compare(const PlacedInstance& ref, const PlacedInstance& cand,
                 ErrorSums* sums, const Layout* within = nullptr);

 private:
  int64_t tile_elements_;
  double element_scale_;
  TileReader ref_reader_;
  TileReader cand_reader_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARE_INSTANCES_H_
