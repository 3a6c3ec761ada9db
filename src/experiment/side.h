// Side: one run's trace with all its legs, wherever they were recorded.
//
// Legs made inside one launch lie in one trace folder; where nothing can be
// replayed each leg is a launch and a folder of its own.
//
// Thread safety: const after opening and Reread.

#ifndef TTRACE_SRC_EXPERIMENT_SIDE_H_
#define TTRACE_SRC_EXPERIMENT_SIDE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/align/catalog.h"
#include "src/experiment/run_facts.h"
#include "src/experiment/run_note.h"
#include "ttrace/dtype.h"
#include "ttrace/leg.h"
#include "ttrace/status.h"

namespace ttrace {

// Something that could not be replaced in an isolated leg, because the
// reference has no such value. From a note of the candidate.
struct NotIsolated {
  Leg leg;
  int iteration = 0;
  std::string fqn;  // of the module
  Role role;        // kInput or kGradOutput
  std::string arg;
  std::string reason;
};

class Side {
 public:
  // On `threads` threads (0: as many as cores).
  static Result<Side> Open(const std::string& folder,
                           const std::vector<std::string>& leg_folders,
                           int threads = 1);

  // Of a trace that is open.
  static Side Of(std::shared_ptr<const Trace> trace);

  const Trace& trace() const { return catalogs_.front()->trace(); }
  std::vector<const Trace*> traces() const;  // of all folders, the main first
  const TensorPieces* Find(const Leg& leg, const TensorId& id) const;
  // As Find, but a recomputed forward also matches the plain forward.
  const TensorPieces* FindSameValue(const Leg& leg, TensorId id) const;
  const std::map<TensorId, TensorPieces>& real() const {
    return catalogs_.front()->tensors(kReal);
  }
  // What the forwards of the run as it was were fed.
  const FedRows& fed_rows() const { return catalogs_.front()->fed_rows(); }
  // As if of the reruns only these had been made.
  void KeepLegs(const std::vector<Leg>& reruns);
  // Replaces the records of a tensor, in every leg, by changed copies.
  void Reread(const TensorId& id,
              const std::function<void(RecordFields*)>& change);
  std::vector<Leg> Legs() const;  // sorted, of all folders
  bool HasLeg(const Leg& leg) const;
  // Those present that are `plain` with noise: "noise.1", "noise.2", ... of
  // the real one.
  std::vector<Leg> NoiseLegsOf(const Leg& plain) const;

  // The lowest floating precision among the parameters and module outputs of
  // the real leg (under autocast they differ), and what modules compute in
  // inside: what the run computes in.
  // Nothing if there are no floating tensors.
  std::optional<DType> ComputeDType() const;
  std::set<int> Iterations() const;
  // Those of which it has anything, also without a module's output.
  std::set<int> RecordedIterations() const;
  // Micro-batches that one data-parallel rank runs in an iteration.
  int MicroBatchesPerRank() const;

  // What it noted of itself, in its main folder.
  const RunFacts& facts() const { return facts_; }
  // What a reader is told of that.
  const std::vector<RunNote>& notes() const { return notes_; }
  // Of all folders: a leg may be a launch of its own.
  const std::vector<NotIsolated>& not_isolated() const { return not_isolated_; }
  // Every rank that left a trace ran this iteration to its end.
  bool Completed(int iteration) const;
  // Why the trace cannot be complete; empty if it is.
  const std::vector<std::string>& defects() const { return defects_; }

 private:
  void Add(std::shared_ptr<const Trace> trace);
  void ReadNotes(const Trace& trace);
  void FindCutLegs(const Catalog& catalog);
  static bool LegCompleted(const Catalog& catalog, const Leg& leg,
                           int iteration);
  void ReadNotIsolated(const Trace& trace);
  void ReadTermsOfReductions();
  void FindDefects(const Trace& trace);
  void NoteUnfinishedSums(const Catalog& catalog);

  bool Keeps(const Leg& leg) const;

  std::vector<std::shared_ptr<Catalog>> catalogs_;  // the main one first
  std::optional<std::set<Leg>> kept_reruns_;        // nothing: all
  RunFacts facts_;
  std::vector<RunNote> notes_;
  std::vector<NotIsolated> not_isolated_;
  std::set<std::pair<Leg, int>> cut_legs_;  // (leg, iteration)
  std::vector<std::string> defects_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_SIDE_H_
