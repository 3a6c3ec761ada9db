// What a diagnosis may look at: one culprit's tensor, the statistics that the
// check already has, and the traces for the few questions that need values.
//
// Thread safety: const; the traces it points to may be read from many threads.

#ifndef TTRACE_SRC_DIAGNOSE_EVIDENCE_H_
#define TTRACE_SRC_DIAGNOSE_EVIDENCE_H_

#include <functional>
#include <string>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/compare_tensor.h"
#include "src/localize/culprit.h"
#include "src/tolerance/judgement.h"

namespace ttrace {

// The reference's tensors in the leg that convicted, or else in its real leg.
using TensorLookup = std::function<const TensorPieces*(const TensorId&)>;

struct Evidence {
  const Culprit* culprit = nullptr;
  const TensorJudgement* judgement = nullptr;
  // The deciding leg; null when only replicas or non-finite values convict.
  const LegJudgement* leg = nullptr;
  const TensorPieces* reference = nullptr;  // may be null: no reference
  const TensorPieces* candidate = nullptr;
  TensorLookup find_reference;

  CompareOptions compare;
  const DeviceMesh* candidate_mesh = nullptr;
  int micro_batches = 1;  // of one data-parallel rank of the candidate
};

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_EVIDENCE_H_
