#include "src/localize/contradiction_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "src/base/format.h"

namespace ttrace {

std::string ContradictionWords(const Contradiction& contradiction) {
  switch (contradiction.kind) {
    case ContradictionKind::kCleanGradients:
      return fmt::format(
          "all {} reduced gradients of its iteration are within bounds, which "
          "other input data would change",
          contradiction.count);
    case ContradictionKind::kCleanIsolated:
      return fmt::format(
          "isolation finds it clean: on the reference's values its headroom is "
          "{:.2g}, end to end {:.3g}",
          contradiction.value, contradiction.other);
    case ContradictionKind::kWideBound:
      return fmt::format("its bound of {} is too wide to mean anything",
                         FormatError(contradiction.value));
  }
  return "";
}

std::string ContestWords(const Culprit& culprit) {
  std::vector<std::string> words;
  for (const Contradiction& one : culprit.contradictions) {
    words.push_back(ContradictionWords(one));
  }
  const std::string name =
      culprit.tensor.fqn.empty() ? "the model" : culprit.tensor.fqn;
  return fmt::format(
      "evidence contradicts itself: {} {}{}{}, iteration {}, is "
      "out of bounds, but {}",
      name, ToString(culprit.tensor.role),
      culprit.tensor.arg.empty() ? "" : " ", culprit.tensor.arg,
      culprit.iteration, fmt::join(words, "; and "));
}

}  // namespace ttrace
