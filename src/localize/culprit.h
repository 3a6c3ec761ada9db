// Culprit: a place where something went wrong, and what is known about why.

#ifndef TTRACE_SRC_LOCALIZE_CULPRIT_H_
#define TTRACE_SRC_LOCALIZE_CULPRIT_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/localize/bug_class.h"
#include "src/localize/error_pattern.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

enum class Direction : uint8_t { kForward, kBackward, kUpdate };
enum class Stage : uint8_t { kInput, kCompute, kCommunication, kOptimizer };
std::string_view ToString(Direction direction);
std::string_view ToString(Stage stage);

// One class of bug with its evidence.
struct Diagnosis {
  BugClass bug_class = {};
  std::string evidence;  // one sentence with numbers
  double value = std::numeric_limits<double>::quiet_NaN();  // its main number
};

// Evidence that speaks against a culprit; see contradictions.h.
enum class ContradictionKind : uint8_t {
  kCleanGradients,  // count: reduced gradients of its iteration, all clean
  kCleanIsolated,   // value: its headroom isolated; other: end to end
  kWideBound,       // value: the bound, which means nothing
};

struct Contradiction {
  ContradictionKind kind = ContradictionKind::kCleanGradients;
  int64_t count = 0;
  double value = 0;
  double other = 0;
};

// A line of the candidate's source that a reader opens first.
struct SourcePlace {
  std::string file;  // as the process saw it; empty: not known
  int64_t line = 0;
  std::string words;  // with file and line, and what is there
};

struct Culprit {
  std::string fqn;  // module or parameter
  // What the candidate's own code calls it, where that is another name.
  std::string name_in_candidate;
  SourcePlace source;
  TensorId tensor;  // the tensor that shows it first
  Direction direction = Direction::kForward;
  Stage stage = Stage::kCompute;
  std::vector<int> ranks;  // sorted
  int iteration = 0;
  double headroom = 0;
  // How the place was found, in words: "its 3 inputs are within bounds".
  std::string where;
  // Tensors of the same role that show the same cause, this one included; after
  // a step parameters, of each of which several may.
  struct Affected {
    int64_t count = 1;
    int64_t of = 1;                     // that were compared
    std::vector<std::string> examples;  // fqns, at most 5
    // Of parameters, the first tensor of each name without layer numbers, and
    // how many there are of it: a name may have a cause of its own.
    struct Name {
      TensorId first;
      int64_t count = 1;
      double headroom = 0;
      std::vector<int> ranks;
    };
    std::vector<Name> names;
  } affected;
  // Every tensor that was laid to it, in all iterations, each once; of a
  // culprit that is made of settings alone none.
  std::vector<TensorId> shown_by;
  // Which of the two ways named it: "dataflow", "isolation", or both in this
  // order; and, where they disagree, how.
  std::vector<std::string> found_by = {"dataflow"};
  std::string disagreement;
  std::vector<Diagnosis> classes;  // most certain first; may be empty
  std::vector<Contradiction> contradictions;
  // Where to look, each with what was observed there; may be empty.
  std::vector<std::string> hints;
  std::optional<ErrorPattern>
      pattern;  // of its tensor in the leg that convicts

  bool FoundBy(std::string_view way) const {
    return std::find(found_by.begin(), found_by.end(), way) != found_by.end();
  }
  // By the values of tensors. Settings, masks and states are what runs say of
  // themselves beside them: no leg shows them.
  bool OfValues() const { return FoundBy("dataflow") || FoundBy("isolation"); }
  bool Has(BugClass bug_class) const {
    return std::any_of(classes.begin(), classes.end(), [&](const Diagnosis& d) {
      return d.bug_class == bug_class;
    });
  }
};

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_CULPRIT_H_
