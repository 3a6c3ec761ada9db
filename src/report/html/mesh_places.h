// Where the ranks of a side lie: their coordinates along the axes of its mesh,
// and what a set of ranks has in common.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_HTML_MESH_PLACES_H_
#define TTRACE_SRC_REPORT_HTML_MESH_PLACES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/report/result_file.h"

namespace ttrace {

struct MeshPlaces {
  std::vector<ResultFile::Axis> axes;  // of more than one place
  // Of each rank its place along `axes`; empty if it is not known.
  std::vector<std::vector<int64_t>> coordinates;
  bool assumed = false;  // the last axis runs fastest: nobody said so
};

// The most ranks that a page draws.
inline constexpr int64_t kMostRanksShown = 4096;

// From the side's grid, else from its mesh in words. Ranks above
// kMostRanksShown are left out.
MeshPlaces PlacesOfSide(const ResultFile::Side& side);

// "every rank with pp 1, tp 0-1" if these are all ranks of such coordinates,
// "" if they are no such box or there is one rank or axis only.
std::string CommonPlaces(const MeshPlaces& places,
                         const std::vector<int64_t>& ranks);

// "pp 1, tp 0"; "" if not known.
std::string PlaceOfRank(const MeshPlaces& places, int64_t rank);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_MESH_PLACES_H_
