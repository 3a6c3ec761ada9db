#include "src/region/box_words.h"

#include <algorithm>

namespace ttrace {
namespace {

constexpr size_t kMostRuns = 8;

std::string RunsOf(const DimLayout& dim) {
  if (dim.segments.empty()) return "none";
  if (dim.segments.size() == 1 && dim.segments[0].size == dim.global_size) {
    return "all";
  }
  std::string runs;
  const size_t shown = std::min(dim.segments.size(), kMostRuns);
  for (size_t i = 0; i < shown; ++i) {
    const Segment& run = dim.segments[i];
    if (i > 0) runs += ' ';
    runs +=
        std::to_string(run.begin) + ':' + std::to_string(run.begin + run.size);
  }
  if (shown < dim.segments.size()) {
    runs += " ... (" + std::to_string(dim.segments.size()) + " runs)";
  }
  return runs;
}

}  // namespace

std::string BoxWords(const Layout& layout) {
  std::string text;
  for (const DimLayout& dim : layout.dims) {
    if (!text.empty()) text += ", ";
    text += RunsOf(dim);
  }
  return "[" + text + "]";
}

}  // namespace ttrace
