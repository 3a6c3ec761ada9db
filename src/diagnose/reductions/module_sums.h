// What sums over ranks a module's values need, and which were seen.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_DIAGNOSE_REDUCTIONS_MODULE_SUMS_H_
#define TTRACE_SRC_DIAGNOSE_REDUCTIONS_MODULE_SUMS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "src/diagnose/reductions/seen_collectives.h"

namespace ttrace {

// What a module's values of one role need and what was seen of it.
struct ModuleSums {
  // Values that each rank holds and that have to be summed: each micro-batch,
  // use and argument for itself. Rank -> how many.
  std::map<int, int64_t> needed;
  std::set<std::string> dims;              // all that they are summed over
  std::map<int, std::set<int64_t>> sizes;  // rank -> their elements
  std::map<int, int64_t> made;             // rank -> sums seen
  bool all_fit = true;                     // each of the size of a value
  bool unclear = false;
  std::string kind;              // of a sum that was seen
  std::set<int> over, terms_on;  // set where one is over other ranks
};

// Of all values of the name, role, pass and iteration of `of`, over one mesh
// dimension, in one phase of the iteration.
// REQUIRES: seen.IsComplete(of.iteration).
ModuleSums FindModuleSums(const SeenCollectives& seen, const TensorId& of,
                          const std::string& phase, const std::string& dim);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_REDUCTIONS_MODULE_SUMS_H_
