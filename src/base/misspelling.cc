#include "src/base/misspelling.h"

#include <algorithm>

#include "src/base/format.h"

namespace ttrace {
namespace {

// Edits between a and b, by the optimal string alignment recurrence.
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1,
                                     std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string Nearest(std::string_view word,
                    const std::vector<std::string>& known) {
  // Nobody misspells a word of this length, and the table would grow with it.
  constexpr size_t kLongest = 64;
  std::string best;
  if (word.size() > kLongest) return best;
  size_t fewest = word.size() / 3 + 1;
  for (const std::string& candidate : known) {
    const size_t edits = Edits(word, candidate);
    if (edits < fewest) {
      fewest = edits;
      best = candidate;
    }
  }
  return best;
}

std::string DidYouMean(std::string_view word,
                       const std::vector<std::string>& known) {
  const std::string nearest = Nearest(word, known);
  return nearest.empty() ? "" : "; did you mean " + Printable(nearest) + "?";
}

}  // namespace ttrace
