// Hyperparameters: what each optimizer step of a run computed with, by
// parameter. From the notes "optimizer_group".
//
// How a run groups its parameters is its own affair and is forgotten here.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_STEP_HYPERPARAMETERS_H_
#define TTRACE_SRC_STEP_HYPERPARAMETERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/trace/note_list.h"

namespace ttrace {

// A number, numbers ("betas"), or a word: "True", "none", the name of an
// algorithm.
struct Hyperparameter {
  std::vector<double> numbers;
  std::string word;  // empty: the numbers are meant

  auto operator<=>(const Hyperparameter&) const = default;
  // As a person would write it: "0.001", "(0.9, 0.999)", "True".
  std::string Text() const;
};

// Whether a step computes the same with both. Schedules compute the same number
// in different ways: 1e-3 x 0.1 is not 1e-4, but one unit of round-off (2^-53)
// beside it. 1e-12 admits four thousand such units, and no person types a
// difference that small.
bool SameHyperparameter(const Hyperparameter& a, const Hyperparameter& b);

// Value -> ranks that had it. More than one if the run contradicts itself.
using ValuesOfRanks = std::map<Hyperparameter, std::set<int>>;

// Values of a step that are no settings but say what became of gradients: that
// their norm was above the limit of clipping, that the loop changed them before
// they were recorded, and that a backward added to them after it.
inline constexpr char kClipped[] = "clipped";
inline constexpr char kChangedEarly[] =
    "gradients changed before they were recorded";
inline constexpr char kIncomplete[] =
    "gradients recorded before the last backward";

// How often gradients were clipped, each time after a backward.
inline constexpr char kClippings[] = "the number of clippings in an iteration";

struct StepOfParameter {
  int iteration = 0;
  std::string fqn;
  auto operator<=>(const StepOfParameter&) const = default;
};

struct Hyperparameters {
  // Name ("lr", "weight_decay", "kind", ...) -> values.
  std::map<StepOfParameter, std::map<std::string, ValuesOfRanks>> steps;
  int64_t malformed = 0;  // notes that say nothing that can be read

  bool empty() const { return steps.empty(); }
};

// Never fails: what cannot be read is counted.
Hyperparameters ReadHyperparameters(const NoteList& notes);

}  // namespace ttrace

#endif  // TTRACE_SRC_STEP_HYPERPARAMETERS_H_
