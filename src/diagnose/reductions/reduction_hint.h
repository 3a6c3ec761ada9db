// Where to look: which of the sums over ranks that a culprit's value needs were
// seen to be made, which were not, which twice, and over which ranks.
//
// What is needed follows from what the tensors declare: `reduced_over`, and
// Partial placements of gradients that nobody has reduced. What was made is in
// the collectives that the candidate's ranks recorded. The code under test is
// never asked what it meant to do, but attributes that it acts by and that are
// not as expected are named beside.
//
// Silent where that is no evidence: collectives were not recorded or not all of
// them, a rank is missing, the framework makes such sums outside of Python, or
// a collective whose parameters are unknown may be the one that is missed.
//
// Thread safety: const after construction; what it is given must outlive it.

#ifndef TTRACE_SRC_DIAGNOSE_REDUCTIONS_REDUCTION_HINT_H_
#define TTRACE_SRC_DIAGNOSE_REDUCTIONS_REDUCTION_HINT_H_

#include <set>
#include <string>
#include <vector>

#include "src/diagnose/reductions/module_sums.h"
#include "src/diagnose/reductions/seen_collectives.h"
#include "src/localize/culprit.h"

namespace ttrace {

class ReductionHints {
 public:
  explicit ReductionHints(ReductionEvidence evidence);

  // Sentences, most telling first; usually none or one.
  std::vector<std::string> For(const Culprit& culprit) const;

  // The sentence that says that a sum was made over other ranks than those that
  // hold its terms; empty if none was seen.
  std::string WrongGroup(const Culprit& culprit) const;

  // Whether every sum over ranks that a module's value needs was seen to be
  // made, over the right ranks: then no term is missing, whatever is wrong.
  // False if that is not known, and for parameters.
  bool SumsWereMade(const Culprit& culprit) const;

 private:
  struct Sentence {
    std::string text;
    bool wrong_group = false;
  };

  std::vector<Sentence> Sentences(const Culprit& culprit) const;
  std::vector<Sentence> ForParameter(const Culprit& culprit) const;
  std::vector<Sentence> ForModule(const Culprit& culprit) const;
  static Sentence Describe(const ModuleSums& sums, const std::string& dim,
                           bool cut);
  std::string Attributes(const std::set<std::string>& fqns) const;
  std::string AttributesOfBuckets(const std::string& fqn, int iteration) const;

  SeenCollectives seen_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_REDUCTIONS_REDUCTION_HINT_H_
