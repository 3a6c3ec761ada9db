// What sums over ranks a parameter's gradient needs, and which were seen.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_REDUCTIONS_PARAMETER_SUMS_H_
#define TTRACE_SRC_DIAGNOSE_REDUCTIONS_PARAMETER_SUMS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "src/diagnose/reductions/seen_collectives.h"

namespace ttrace {

// A parameter's gradient in one iteration.
struct SummedGradient {
  std::set<std::string> dims;      // mesh dimensions to be summed over
  std::map<int, int64_t> holders;  // rank -> elements
};

// By the parameter's name.
std::map<std::string, SummedGradient> SummedGradients(
    const SeenCollectives& seen, int iteration);

// What was seen of one parameter's sum over one mesh dimension.
struct ParameterSum {
  bool needed = false;           // more than one rank holds a term
  bool unclear = false;          // an unnamed collective may have made the sum
  int64_t times = 0;             // the most that one rank made the same sum
  std::string kind;              // of a collective that concerns it
  std::set<int> missing;         // ranks that took part in none
  std::set<int> over, terms_on;  // set where a group is not the right one
};

// REQUIRES: seen.IsComplete(iteration).
ParameterSum FindParameterSum(const SeenCollectives& seen,
                              const std::string& fqn,
                              const SummedGradient& gradient,
                              const std::string& dim, int iteration);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_REDUCTIONS_PARAMETER_SUMS_H_
