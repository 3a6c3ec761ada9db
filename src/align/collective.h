// Collectives: the communications that each rank took part in during a captured
// iteration's real call and its optimizer step, as the notes of a trace say. No
// values: who, over which group, from where in the program.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_ALIGN_COLLECTIVE_H_
#define TTRACE_SRC_ALIGN_COLLECTIVE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/trace/note_list.h"

namespace ttrace {

struct Collective {
  int rank = 0;  // that recorded it
  int iteration = 0;
  int64_t order = 0;  // among this rank's collectives of the iteration
  // "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast",
  // "reduce", "gather", "scatter", "send", "recv", "barrier".
  std::string kind;
  std::string op;  // "sum", "avg", "max", ...; empty where none
  // Global ranks of the group, sorted; of a send or receive, the two.
  std::vector<int> members;
  // "forward", "recompute", "backward", "reduction" (gradients, after or beside
  // the backward), "optimizer", or empty: elsewhere.
  std::string phase;
  std::string fqn;  // the innermost module that runs, or ran last in backward
  int micro_batch = -1;
  int64_t elements = 0;  // that this rank gives, or receives if it gives none
  std::string dtype;
  std::vector<std::string> parameters;  // whose gradients these are, if known
  // The operation of the model that is being differentiated by it ("" if none:
  // not one that a gradient that is complete sets off, as a reduction's is).
  std::string node;
  // When it was called: microseconds of its machine's monotonic clock, as the
  // times of records; -1: not known.
  int64_t time_us = -1;

  // Whether it adds or averages the terms of its members.
  bool Sums() const;
};

// All collectives of a trace, and what may be concluded from one's absence.
struct CollectiveLog {
  std::vector<Collective> seen;  // sorted by (rank, iteration, order)
  // (rank, iteration) whose notes are all there: what is not among them did not
  // go through torch.distributed.
  std::set<std::pair<int, int>> complete;
  // Phase -> why collectives of it cannot be seen in this run.
  std::map<std::string, std::string> not_seen;
  int64_t malformed = 0;  // notes that were skipped
};

// Reads the notes `collective`, `collectives` and `collectives_not_seen`.
// Never fails: a note that makes no sense is counted, and its rank's iteration
// is then not complete.
CollectiveLog ReadCollectives(const NoteList& notes);

}  // namespace ttrace

#endif  // TTRACE_SRC_ALIGN_COLLECTIVE_H_
