// What all tensors together say about what each may be: how small the risk of
// one test must be, and the common factors that noise shows in one role of all
// layers.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_JUDGE_EXPECTATIONS_H_
#define TTRACE_SRC_JUDGE_EXPECTATIONS_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/experiment/rounding.h"
#include "src/judge/constants.h"
#include "src/measure/facts.h"
#include "src/measure/packed_facts.h"

namespace ttrace {

class Expectations {
 public:
  // `run_risk`: how often a clean run may be flagged by chance.
  Expectations(const PackedFacts& tensors, double run_risk);

  // Of one test: the run's, divided over all tests.
  double risk() const { return risk_; }
  int64_t tests() const { return tests_; }
  // Mean square of the noise legs' projections over the layers of the tensor's
  // role, in all iterations.
  double PooledProjection(const TensorId& id, size_t plan) const;
  // The squares of all terms that the reference's value is the sum of, added
  // up, where they are known: of a bias, which is added to what its module
  // makes, the gradients that arrive there. 0: not known.
  double TermsOf(const TensorFacts& facts) const;
  // What ranks and micro-batches add to a parameter's gradient, of the run in
  // which that is more, in units of the squares of the reference's gradient:
  // `squares` of all of them, `largest` of their mean.
  GradientParts PartsBeside(const TensorId& id, const Rounding& rounding) const;
  // Whether all that was computed up to this place in the order of execution is
  // repeated bit for bit by the replay of either run. After a value that is not
  // nothing is exact, even if its own replay happened to be.
  bool RepeatsBefore(int64_t order) const { return order < first_unrepeated_; }

 private:
  // (role, argument, name without layer numbers, pass, plan)
  using Family = std::tuple<Role, std::string, std::string, Pass, size_t>;
  static Family FamilyOf(const TensorId& id, size_t plan);

  struct Pool {
    double sum = 0;
    int64_t count = 0;
  };
  // Gradients that arrive at a module in one iteration, in the reference.
  struct Arriving {
    double sum_sq = 0;
    int64_t count = 0;
    std::string arg;
    bool one_output = true;
  };
  using Use = std::pair<int, std::string>;  // iteration, module
  void AddArriving(const TensorFacts& tensor);

  // Parameters' local gradients in one iteration, by name.
  void AddLocalGradient(const TensorFacts& tensor);

  std::map<Family, Pool> pools_;
  std::map<Use, Arriving> arriving_;
  // The reference's local gradients.
  std::map<std::pair<int, std::string>, ErrorStats> local_gradients_;
  int64_t tests_ = 0;
  int64_t first_unrepeated_ = std::numeric_limits<int64_t>::max();
  double risk_ = kRunRisk;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_EXPECTATIONS_H_
