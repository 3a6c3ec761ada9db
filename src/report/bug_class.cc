#include "src/report/bug_class.h"

namespace ttrace {

std::string_view BugClassName(std::string_view letter) {
  struct Entry {
    std::string_view letter;
    std::string_view name;
  };
  // The same list, with explanations, stands in docs/result_schema.md.
  static constexpr Entry kClasses[] = {
      {"K", "constant factor"},
      {"P", "missing partial sum"},
      {"R", "replicas differ"},
      {"S", "stale value"},
      {"X", "permutation or wrong owner"},
      {"W", "wrong slice or wrong group's data"},
      {"M", "missing or zero gradient"},
      {"G", "only gradient norm or clipping"},
      {"L", "loss normalisation"},
      {"N", "non-finite values"},
      {"Z", "other structure or other inputs"},
      {"D", "lost precision"},
      {"I", "the run does not repeat itself"},
      {"H", "hyperparameters differ"},
      {"U", "dropout masks"},
      {"C", "changed between steps"},
  };
  for (const Entry& entry : kClasses) {
    if (entry.letter == letter) return entry.name;
  }
  return "unknown class";
}

}  // namespace ttrace
