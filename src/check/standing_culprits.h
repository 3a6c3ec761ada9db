// Which culprits stand, and in which order.
//
// Values name places; what the runs were told, what they drew and what they
// changed between steps names others. Facts of a run excuse what is no finding
// beside them, before anybody asks why it is one: no explanation decides
// whether there is something to explain.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_CHECK_STANDING_CULPRITS_H_
#define TTRACE_SRC_CHECK_STANDING_CULPRITS_H_

#include <cstdint>
#include <set>
#include <vector>

#include "src/experiment/run_note.h"
#include "src/judge/judgement.h"
#include "src/localize/culprit.h"

namespace ttrace {

// Facts by which culprits of values are no findings.
struct Excuses {
  // The values of the reference are no yardstick: only what needs none stands.
  bool nothing_is_comparable = false;
  // Nor are the candidate's own: nothing stands.
  bool nothing_stands = false;
  // Iterations in which a factor between reduced gradients says nothing, and in
  // which gradients say nothing at all (HyperparameterFaults).
  std::set<int> unlike_gradients;
  std::set<int> incomplete_gradients;
};

// What notes say of it.
Excuses ExcusesOf(const std::vector<RunNote>& notes);

struct Standing {
  std::vector<Culprit> culprits;
  bool excused_factors = false;  // of unlike gradients
};

// Those of `culprits` that nothing excuses.
Standing WithoutExcused(std::vector<Culprit> culprits,
                        const std::vector<TensorJudgement>& tensors,
                        const Excuses& excuses);

// The first diverged tensor, in the order of execution, as a culprit; nothing
// if none is. Nothing diverged may stay without a place.
std::vector<Culprit> FirstDiverged(const std::vector<TensorJudgement>& tensors);

// Where in its iteration something went wrong that no tensor shows.
enum class Moment : uint8_t { kBegin, kBackward, kStep, kAfterStep };

// Puts `found` where they belong among `culprits`, which are in the order of
// execution. Those of one iteration stay in their order.
void Insert(std::vector<Culprit> found, Moment moment,
            std::vector<Culprit>* culprits);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_STANDING_CULPRITS_H_
