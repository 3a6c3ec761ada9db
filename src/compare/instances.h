// Pieces -> instances -> groups of replicas.
//
// An instance is what makes values: one piece, or all terms of a Partial. A
// group is the instances of one layout, that is of one region of the tensor.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_COMPARE_INSTANCES_H_
#define TTRACE_SRC_COMPARE_INSTANCES_H_

#include <string>
#include <vector>

#include "src/align/catalog.h"
#include "src/base/small_vector.h"
#include "src/compare/compare_options.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

struct Term {
  Record record;
  double weight = 1;  // declared scale, and 1 / n for a mean
};

// Whether it is declared to be a term, of however many.
bool IsTerm(const Record& record);

struct Instance {
  const Trace* trace = nullptr;
  SmallVector<Term> terms;  // never empty; sorted by (rank, micro-batch)
  SmallVector<int> ranks;   // sorted, each once
  int micro_batch = -1;     // -1 also for a sum over micro-batches
  // Mesh dimensions that were summed over: coordinates along them say nothing.
  std::vector<std::string> summed;
};

struct InstanceGroup {
  Layout layout;  // rows already mapped
  std::vector<Instance> instances;
};

// An instance and where it lies.
struct PlacedInstance {
  const Instance& instance;
  const Layout& layout;
};

// Groups of all pieces, in the order of their first piece. Of `options`,
// sum_over, extra_scale and rows apply.
//
// Fails with kIncomparable if the pieces have no place, a Partial lacks a term
// or pieces disagree about the global shape, kInvalidArgument if the row map is
// not a permutation of the batch.
Result<std::vector<InstanceGroup>> GroupInstances(
    const TensorPieces& pieces, const CompareOptions& options);

// "output of decoder.layers.0.mlp ..." for messages.
std::string DescribeTensor(const TensorPieces& pieces);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_INSTANCES_H_
