// What a diagnosis may look at: one culprit's tensor, the statistics that the
// check already has, and the traces for the few questions that need values.
//
// Thread safety: const; the traces it points to may be read from many threads.

#ifndef TTRACE_SRC_DIAGNOSE_EVIDENCE_H_
#define TTRACE_SRC_DIAGNOSE_EVIDENCE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/align/attribute.h"
#include "src/align/catalog.h"
#include "src/compare/compare_tensor.h"
#include "src/experiment/cleared_gradients.h"
#include "src/experiment/early_reductions.h"
#include "src/judge/judgement.h"
#include "src/localize/culprit.h"
#include "src/step/replayed_step.h"

namespace ttrace {

// A side's tensors in the leg that fails, or else in its real leg; null if
// it has no such tensor.
using TensorLookup = std::function<const TensorPieces*(const TensorId&)>;
using TensorVisit = std::function<void(const TensorId&, const TensorPieces&)>;

struct Evidence {
  const Culprit* culprit = nullptr;
  const TensorJudgement* judgement = nullptr;
  // The leg whose numbers are looked at: an isolated one that fails if there
  // is one (nothing contaminates it), else the deciding leg; where only
  // replicas fail, one of which summaries do not tell whether it is within its
  // bound, or null.
  const LegJudgement* leg = nullptr;
  const TensorPieces* reference = nullptr;  // may be null: no reference
  const TensorPieces* candidate = nullptr;
  // Candidate against reference in that leg, by rank and micro-batch.
  std::vector<InstanceStats> instances;
  std::vector<Layout> regions;  // that they hold
  TensorLookup find_reference;
  TensorLookup find_candidate;
  // Calls `visit` for every tensor of the reference of that leg.
  std::function<void(const TensorVisit& visit)> visit_reference;

  CompareOptions compare;
  const DeviceMesh* candidate_mesh = nullptr;
  int micro_batches = 1;  // of one data-parallel rank of the candidate
  // Shape of the model's own input; 0: not known.
  int64_t global_batch = 0;
  int64_t sequence_length = 0;

  // Of no module's output of this iteration it is unknown whether it is within
  // its bound because only summaries are there.
  bool outputs_are_known = true;
  // The backward of this iteration found gradients that were not empty.
  bool gradients_were_kept = false;
  // Its reduction was seen to begin before its sum was whole; else null.
  const EarlyReduction* reduced_early = nullptr;
  // The loop cleared it within the iteration, and the reference's did not; else
  // null.
  const Clearing* cleared = nullptr;
  // Every sum over ranks that the culprit's value needs was seen to be made.
  bool sums_were_made = false;
  // Says that such a sum was made over other ranks; empty if none was seen.
  std::string wrong_group;
  // They support a class, and name no culprit.
  std::vector<Attribute> attributes;  // of the candidate
  std::vector<Attribute> reference_attributes;
  // Diverged tensors of the culprit's role and iteration, in order.
  std::vector<const TensorJudgement*> affected;
  // The step that made the culprit's tensor, made again; null: it is not one
  // that is wrong. And all weight decays that the run steps with.
  const ReplayedStep* step = nullptr;
  std::vector<double> weight_decays;
  // Unmatched and without an explanation.
  std::vector<const TensorJudgement*> unmatched;

  // Of a dimension of the candidate's mesh; 1 for one that it has not.
  int SizeOf(const std::string& mesh_dim) const {
    const int dim = candidate_mesh->Find(mesh_dim);
    return dim < 0 ? 1 : candidate_mesh->dims[static_cast<size_t>(dim)].size;
  }
};

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_EVIDENCE_H_
