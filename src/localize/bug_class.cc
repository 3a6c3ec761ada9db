#include "src/localize/bug_class.h"

#include <array>
#include <cstddef>

namespace ttrace {
namespace {

struct ClassWords {
  std::string_view letter;
  std::string_view name;
};

// In the order of the enumeration. The same list, with explanations, stands in
// docs/result_schema.md.
constexpr std::array<ClassWords, kBugClasses> kClassWords = {{
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
}};

const ClassWords& WordsOf(BugClass bug_class) {
  return kClassWords[static_cast<size_t>(bug_class)];
}

}  // namespace

std::string_view LetterOf(BugClass bug_class) {
  return WordsOf(bug_class).letter;
}

std::string_view NameOf(BugClass bug_class) { return WordsOf(bug_class).name; }

std::string_view NameOf(BugClass bug_class, Role role) {
  if (bug_class == BugClass::kOtherModelOrInputs) {
    if (role == Role::kData) return "other input data";
    if (role == Role::kParam) return "other initial weights";
    if (role == Role::kBuffer) return "other initial buffers";
  }
  return NameOf(bug_class);
}

std::string_view NameOfLetter(std::string_view letter) {
  for (const ClassWords& words : kClassWords) {
    if (words.letter == letter) return words.name;
  }
  return "";
}

}  // namespace ttrace
