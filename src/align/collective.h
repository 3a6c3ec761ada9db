// One collective communication that a rank took part in during a captured
// iteration's real call, as the note "collective" of its trace says. No values:
// who, over which group, from where in the program.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_ALIGN_COLLECTIVE_H_
#define TTRACE_SRC_ALIGN_COLLECTIVE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

struct Collective {
  int rank = 0;  // that recorded it
  int iteration = 0;
  int64_t order = 0;  // among this rank's collectives of the iteration
  // "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast",
  // "reduce", "gather", "scatter", "send", "recv", "barrier".
  std::string kind;
  std::string op;            // "sum", "avg", "max", ...; empty where none
  std::vector<int> members;  // global ranks of the group, sorted
  // "forward", "recompute", "backward", "reduction" (gradients, after or beside
  // the backward), "optimizer", or empty: elsewhere.
  std::string phase;
  std::string fqn;  // the innermost module that runs, or ran last in backward
  int micro_batch = -1;
  int64_t elements = 0;
  std::string dtype;
  std::vector<std::string> parameters;  // whose gradients these are, if known
};

}  // namespace ttrace

#endif  // TTRACE_SRC_ALIGN_COLLECTIVE_H_
