// Ranks as squares, laid out by their mesh.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_HTML_MESH_DRAWING_H_
#define TTRACE_SRC_REPORT_HTML_MESH_DRAWING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/report/html/mesh_places.h"

namespace ttrace {

struct RankMark {
  int64_t out = 0;     // tensors out of bounds
  int64_t copies = 0;  // of which it holds other copies
  bool blamed = false;
};

// The last axis runs across, with the one before it while that fits; the next
// ones run down, and what does not fit below stands beside, under its place.
// REQUIRES: marks is not empty.
std::string MeshSvg(const std::vector<RankMark>& marks,
                    const MeshPlaces& places);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_MESH_DRAWING_H_
