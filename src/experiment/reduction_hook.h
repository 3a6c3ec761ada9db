// Code of the user's own by which gradients are reduced over ranks, as
// DistributedDataParallel's communication hooks are, or the loop itself where
// there is no wrapper, and in which precision it sends them. A gradient that is
// computed in float32 and sent in bfloat16 is rounded to that, which no noise
// leg of its own precision shows.
//
// The precision is known of functions of the framework that capture names, or
// is that of the collectives that ranks were seen to make in the backward: if
// these sum floating numbers, as many as there are gradients. Anything else
// (factors of low rank, quantised numbers that are gathered) may lose whatever
// it likes, and what is reduced so is not compared.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_REDUCTION_HOOK_H_
#define TTRACE_SRC_EXPERIMENT_REDUCTION_HOOK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/align/catalog.h"
#include "src/align/collective.h"
#include "src/trace/note_list.h"
#include "ttrace/dtype.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

struct ReductionHook {
  std::string name;  // empty: the loop itself reduces, without a wrapper
  std::optional<DType> sends;  // nothing: not known
  std::string why_unknown;
  int64_t ranks = 1;  // that it reduces over
  int64_t times = 1;  // that each gradient is sent in an iteration
  // Of gradients that are sent in lower precision than they are recorded in,
  // by their local gradient: the squares of the terms over that of their sum.
  std::map<TensorId, double> terms;
};

// From the notes "comm_hook" of a trace and its collectives; nothing if no rank
// left one. Ranks whose hooks differ: the one of which least is known.
std::optional<ReductionHook> ReadReductionHook(const NoteList& notes,
                                               const CollectiveLog& seen);

// Sum of the squares of the terms of a value over the square of their sum; 1
// where it cannot be told.
double TermsOverSum(const TensorPieces& pieces);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_REDUCTION_HOOK_H_
