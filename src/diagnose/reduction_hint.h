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

#ifndef TTRACE_SRC_DIAGNOSE_REDUCTION_HINT_H_
#define TTRACE_SRC_DIAGNOSE_REDUCTION_HINT_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/align/attribute.h"
#include "src/align/catalog.h"
#include "src/align/collective.h"
#include "src/localize/culprit.h"
#include "ttrace/mesh.h"

namespace ttrace {

// What the candidate's trace says.
struct ReductionEvidence {
  const DeviceMesh* mesh = nullptr;
  std::map<int, Coordinate> coordinates;                      // of its ranks
  const std::map<TensorId, TensorPieces>* tensors = nullptr;  // of leg "real"
  const CollectiveLog* collectives = nullptr;
  const std::vector<Attribute>* attributes = nullptr;
};

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
  // A parameter's gradient in one iteration.
  struct Gradient {
    std::set<std::string> dims;      // mesh dimensions to be summed over
    std::map<int, int64_t> holders;  // rank -> elements
  };
  struct Finding;
  struct ModuleSums;
  struct Sentence {
    std::string text;
    bool wrong_group = false;
  };

  std::map<std::string, Gradient> Gradients(int iteration) const;
  Finding Judge(const std::string& fqn, const Gradient& gradient,
                const std::string& dim, int iteration) const;
  std::vector<Sentence> Sentences(const Culprit& culprit) const;
  std::vector<Sentence> ForParameter(const Culprit& culprit) const;
  std::vector<Sentence> ForModule(const Culprit& culprit) const;
  bool ModulesUse(const std::string& dim) const;
  ModuleSums SumsOf(const TensorId& of, const std::string& phase,
                    const std::string& dim) const;
  void Count(const Collective& c, const std::string& module,
             const std::string& dim, ModuleSums* sums) const;
  Sentence Describe(const ModuleSums& sums, const std::string& dim,
                    bool cut) const;
  std::string Attributes(const std::set<std::string>& fqns) const;
  std::string AttributesOfBuckets(const std::string& fqn, int iteration) const;

  bool IsComplete(int iteration) const;
  bool DimIsShared(const std::string& dim) const;  // of more than one rank
  bool Varies(const std::vector<int>& ranks, const std::string& dim) const;
  bool OnOneLine(int a, int b, const std::set<std::string>& dims) const;

  ReductionEvidence evidence_;
  // (rank, iteration) -> its collectives.
  std::map<std::pair<int, int>, std::vector<const Collective*>> seen_;
  std::map<std::string, std::set<int>> parameter_ranks_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_REDUCTION_HINT_H_
