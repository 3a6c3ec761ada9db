// Names for a number: which products of sizes of the run it equals.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_TOPOLOGY_FACTORS_H_
#define TTRACE_SRC_DIAGNOSE_TOPOLOGY_FACTORS_H_

#include <string>
#include <vector>

namespace ttrace {

// A number of the run that code may multiply or divide by.
struct RunSize {
  std::string name;       // "dp", "micro-batches", "sequence length"
  double size = 1;        // sizes of 1 are ignored
  bool expected = false;  // the value is reduced over it: the first suspect
};

// The simplest products of sizes to powers between -2 and 2 (at most three
// factors in all) that equal `value` within the relative `tolerance`: all of
// the best rank, those of expected sizes only before others, fewer factors
// before more. "dp = 2", "1 / (cp = 2)", "(tp = 2)^2 / (dp = 4)". Empty: none.
std::vector<std::string> NamesOfFactor(double value,
                                       const std::vector<RunSize>& sizes,
                                       double tolerance);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_TOPOLOGY_FACTORS_H_
