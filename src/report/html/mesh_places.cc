#include "src/report/html/mesh_places.h"

#include <algorithm>
#include <set>

namespace ttrace {
namespace {

// A size beyond this is no mesh.
constexpr int64_t kLargestAxis = int64_t{1} << 20;

// "pp=1 dp=2 tp=4" as axes; of other words none.
std::vector<ResultFile::Axis> AxesOfWords(const std::string& mesh) {
  std::vector<ResultFile::Axis> axes;
  for (size_t begin = 0; begin < mesh.size();) {
    const size_t end = std::min(mesh.find(' ', begin), mesh.size());
    const std::string word = mesh.substr(begin, end - begin);
    begin = end + 1;
    const size_t sign = word.find('=');
    if (sign == std::string::npos || sign == 0) continue;
    int64_t size = 0;
    for (const char c : word.substr(sign + 1)) {
      if (c < '0' || c > '9' || size > kLargestAxis) return {};
      size = size * 10 + (c - '0');
    }
    if (size < 1) return {};
    axes.push_back({word.substr(0, sign), size});
  }
  return axes;
}

bool AreSizes(const std::vector<ResultFile::Axis>& axes) {
  return !axes.empty() &&
         std::all_of(axes.begin(), axes.end(), [](const auto& axis) {
           return axis.size >= 1 && axis.size <= kLargestAxis;
         });
}

void AssumeCoordinates(int64_t world, MeshPlaces* out) {
  out->assumed = true;
  int64_t product = 1;
  for (const ResultFile::Axis& axis : out->axes) {
    if (product > world) break;
    product *= axis.size;
  }
  if (product != world) {
    out->axes.clear();
    return;
  }
  for (int64_t rank = 0; rank < std::min(world, kMostRanksShown); ++rank) {
    std::vector<int64_t> at(out->axes.size());
    int64_t rest = rank;
    for (size_t i = at.size(); i-- > 0;) {
      at[i] = rest % out->axes[i].size;
      rest /= out->axes[i].size;
    }
    out->coordinates.push_back(std::move(at));
  }
}

// Axes of one place say nothing.
void DropShortAxes(MeshPlaces* places) {
  for (size_t i = places->axes.size(); i-- > 0;) {
    if (places->axes[i].size > 1) continue;
    places->axes.erase(places->axes.begin() + static_cast<int64_t>(i));
    for (auto& at : places->coordinates) {
      if (i < at.size()) at.erase(at.begin() + static_cast<int64_t>(i));
    }
  }
}

}  // namespace

MeshPlaces PlacesOfSide(const ResultFile::Side& side) {
  MeshPlaces out;
  for (const ResultFile::Grid& grid : side.grids) {
    if (grid.name != "mesh" || !AreSizes(grid.axes)) continue;
    out.axes = grid.axes;
    for (const auto& at : grid.coordinates) {
      if (static_cast<int64_t>(out.coordinates.size()) >= kMostRanksShown) {
        break;
      }
      out.coordinates.push_back(
          at.size() == grid.axes.size() ? at : std::vector<int64_t>{});
    }
    DropShortAxes(&out);
    return out;
  }
  out.axes = AxesOfWords(side.mesh);
  AssumeCoordinates(side.world_size, &out);
  DropShortAxes(&out);
  return out;
}

std::string CommonPlaces(const MeshPlaces& places,
                         const std::vector<int64_t>& ranks) {
  if (places.axes.empty() || ranks.size() < 2) return "";
  std::vector<std::set<int64_t>> values(places.axes.size());
  for (const int64_t rank : ranks) {
    if (rank < 0 || rank >= static_cast<int64_t>(places.coordinates.size())) {
      return "";
    }
    const auto& at = places.coordinates[static_cast<size_t>(rank)];
    if (at.size() != values.size()) return "";
    for (size_t i = 0; i < at.size(); ++i) values[i].insert(at[i]);
  }
  size_t in_box = 0;
  for (const auto& at : places.coordinates) {
    bool inside = at.size() == values.size();
    for (size_t i = 0; inside && i < at.size(); ++i) {
      inside = values[i].count(at[i]) > 0;
    }
    in_box += inside ? 1 : 0;
  }
  if (in_box != ranks.size()) return "";
  std::string words;
  for (size_t i = 0; i < values.size(); ++i) {
    if (static_cast<int64_t>(values[i].size()) == places.axes[i].size) continue;
    words += (words.empty() ? "" : ", ") + places.axes[i].name;
    const char* separator = " ";
    for (const int64_t value : values[i]) {
      words += separator + std::to_string(value);
      separator = "|";
    }
  }
  return words.empty() ? "every rank" : "every rank with " + words;
}

std::string PlaceOfRank(const MeshPlaces& places, int64_t rank) {
  if (rank < 0 || rank >= static_cast<int64_t>(places.coordinates.size())) {
    return "";
  }
  const auto& at = places.coordinates[static_cast<size_t>(rank)];
  std::string words;
  for (size_t i = 0; i < std::min(at.size(), places.axes.size()); ++i) {
    words += (words.empty() ? "" : ", ") + places.axes[i].name + " " +
             std::to_string(at[i]);
  }
  return words;
}

}  // namespace ttrace
