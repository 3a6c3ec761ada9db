// Compares what two instances share, tile by tile.
//
// Inside a ForEach (src/base/for_each.h) large ones are compared by all its
// threads, ranges of tiles apart: one tensor may be as large as all others. The
// sums are exact and the others are maxima and counts, so that neither the
// threads nor the ranges nor the tiles can be seen in them.

#ifndef TTRACE_SRC_COMPARE_COMPARE_INSTANCES_H_
#define TTRACE_SRC_COMPARE_COMPARE_INSTANCES_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/compare/error_sums.h"
#include "src/compare/instances.h"
#include "src/compare/tile.h"
#include "src/compare/tile_reader.h"
#include "ttrace/status.h"

namespace ttrace {

// An instance and where it lies.
struct PlacedInstance {
  const Instance& instance;
  const Layout& layout;
};

// Memory: two tiles a thread.
// Not thread-safe: one caller at a time.
class InstanceComparer {
 public:
  // `element_scale`: CompareOptions.
  explicit InstanceComparer(int64_t tile_elements, double element_scale = 0);

  // Adds the statistics of the shared elements to `sums`. Given one instance
  // twice, reads it once. `within`: see ForEachTile. Of errors the first in the
  // order of tiles; `sums` are then anything.
  // REQUIRES: equal global shapes.
  Status Compare(const PlacedInstance& ref, const PlacedInstance& cand,
                 ErrorSums* sums, const Layout* within = nullptr);

 private:
  // What one thread needs.
  struct Sweep {
    TileReader ref_reader;
    TileReader cand_reader;
    ErrorSums sums;
  };
  // Tiles of `tiles_` that one thread compares without a break.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };

  Status CompareTiles(const Instance& ref, const Instance& cand, bool* verified,
                      ErrorSums* sums);
  Status CompareRange(const Instance& ref, const Instance& cand,
                      const Range& range, Sweep* sweep, ErrorSums* sums) const;
  std::vector<Range> RangesOfTiles() const;
  std::unique_ptr<Sweep> Borrow();
  void GiveBack(std::unique_ptr<Sweep> sweep);

  int64_t tile_elements_;
  double element_scale_;
  std::vector<Tile> tiles_;  // that wait to be compared
  std::mutex idle_mutex_;
  std::vector<std::unique_ptr<Sweep>> idle_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARE_INSTANCES_H_
