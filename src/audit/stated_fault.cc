#include "src/audit/stated_fault.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace ttrace {

Culprit CulpritOf(const StatedFault& fault) {
  constexpr size_t kExamples = 5;
  const bool of_step = fault.tensor.pass == Pass::kOptimizer;
  const bool of_backward = fault.tensor.pass == Pass::kBackward;
  Culprit out;
  out.fqn = fault.tensor.fqn;
  out.tensor = fault.tensor;
  out.direction = of_step       ? Direction::kUpdate
                  : of_backward ? Direction::kBackward
                                : Direction::kForward;
  out.stage = of_step ? Stage::kOptimizer : Stage::kCompute;
  out.ranks.assign(fault.ranks.begin(), fault.ranks.end());
  out.iteration = fault.tensor.iteration;
  out.headroom = std::numeric_limits<double>::infinity();
  out.where = fault.where;
  out.affected.count = static_cast<int64_t>(fault.fqns.size());
  out.affected.of = fault.of;
  for (const std::string& fqn : fault.fqns) {
    if (out.affected.examples.size() == kExamples) break;
    out.affected.examples.push_back(fqn);
  }
  out.found_by = {fault.found_by};
  out.classes = {fault.diagnosis};
  return out;
}

}  // namespace ttrace
