// A fault that is read from what a run says of itself (its settings, the masks
// it drew, what it found of its states), not from an error of a tensor.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_AUDIT_STATED_FAULT_H_
#define TTRACE_SRC_AUDIT_STATED_FAULT_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "src/localize/culprit.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

struct StatedFault {
  TensorId tensor;  // its pass says in which direction the fault is
  std::set<int> ranks;
  std::vector<std::string> fqns;  // that have it
  int64_t of = 0;                 // of so many that could
  std::string where;              // how it is known, in words
  std::string found_by;
  Diagnosis diagnosis;
};

// No headroom says how far off it is: infinite.
Culprit CulpritOf(const StatedFault& fault);

}  // namespace ttrace

#endif  // TTRACE_SRC_AUDIT_STATED_FAULT_H_
