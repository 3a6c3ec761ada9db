// What one rank holds of a tensor, at the elements of another one's piece.
//
// A step of an optimizer is made of what its rank has: a gradient that is
// whole, state that is a shard, a flat buffer's part of a parameter. Pieces of
// one rank are matched by where they lie, whatever each is cut like.
//
// Thread safety: pure functions of const inputs, but for HeldReader: one per
// thread.

#ifndef TTRACE_SRC_COMPARE_HELD_VALUES_H_
#define TTRACE_SRC_COMPARE_HELD_VALUES_H_

#include <cstdint>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/tile.h"
#include "src/compare/tile_reader.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

struct HeldValues {
  std::vector<double> values;  // in the order of `want`; 0 where not held
  std::vector<char> held;      // parallel: 1 where the rank has the element
  int64_t missing = 0;         // elements that it has not
};

inline constexpr int kAnyRank = -1;

// The values of `rank` at the elements of `want`, row-major, as recorded: no
// scale is applied. Of kAnyRank, those of the first rank that has them. Terms
// of a Partial are no values and not held; so is everything of a tensor of
// another shape. Fails only if a file cannot be read.
Result<HeldValues> ReadHeld(const TensorPieces& pieces, int rank,
                            const Layout& want);

// The same, again and again with the same memory: what `out` held is lost, and
// its vectors are used again.
class HeldReader {
 public:
  Status Read(const TensorPieces& pieces, int rank, const Layout& want,
              HeldValues* out);

 private:
  // `first`: no earlier record gave any element.
  Status ReadTile(const Trace& trace, const Record& record, const Tile& tile,
                  bool first, HeldValues* out);

  TileReader reader_;
  std::vector<double> row_;
};

// `layout` in parts of at most `most` elements (at least 1), in its order. Of
// what holds nothing there are none.
std::vector<Layout> CutLayout(const Layout& layout, int64_t most);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_HELD_VALUES_H_
