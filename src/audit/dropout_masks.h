// DropoutFacts: whether a run dropped values, and which masks it drew. From the
// notes "dropout" and "dropout_mask".
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_AUDIT_DROPOUT_MASKS_H_
#define TTRACE_SRC_AUDIT_DROPOUT_MASKS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "src/trace/note_list.h"

namespace ttrace {

// One call of dropout in the real leg of one rank.
struct DropoutMask {
  int rank = 0;
  int iteration = 0;
  std::string fqn;  // of the innermost module
  int call = 0;     // k-th dropout in it, within one forward
  int micro_batch = 0;
  bool recompute = false;
  double p = 0;          // 0: nothing is dropped, and there is no mask
  int64_t elements = 0;  // of which the mask is known: the input is not 0 there
  std::string input;     // digest
  std::string mask;      // digest
  std::vector<double> sample;  // of the input
  bool repeats = false;        // the input holds one slice twice
};

struct DropoutFacts {
  bool active = false;  // some rank called dropout with 0 < p
  bool off = false;     // and capture handed the values on as they were
  double p_max = 0;
  std::vector<DropoutMask> masks;
  // Mesh dimensions along which the framework is known to seed ranks alike, and
  // how it says so.
  std::set<std::string> alike;
  std::string alike_why;
  int64_t malformed = 0;
};

// Never fails: what cannot be read is counted.
DropoutFacts ReadDropout(const NoteList& notes);

}  // namespace ttrace

#endif  // TTRACE_SRC_AUDIT_DROPOUT_MASKS_H_
