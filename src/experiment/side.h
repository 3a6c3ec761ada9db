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
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/align/attribute.h"
#include "src/align/catalog.h"
#include "src/align/collective.h"
#include "src/experiment/early_reductions.h"
#include "src/experiment/fused_modules.h"
#include "src/experiment/handed_out.h"
#include "src/experiment/reduction_hook.h"
#include "src/experiment/run_note.h"
#include "src/experiment/source_lines.h"
#include "src/experiment/state_changes.h"
#include "ttrace/dtype.h"
#include "ttrace/status.h"

namespace ttrace {

// Something that could not be replaced in an isolated leg, because the
// reference has no such value. From a note of the candidate.
struct NotIsolated {
  std::string leg;
  int iteration = 0;
  std::string fqn;  // of the module
  Role role;        // kInput or kGradOutput
  std::string arg;
  std::string reason;
};

// Modules whose parameters' gradients are sums over tokens of what goes through
// their edges, and of nothing else.
struct TokenSums {
  std::map<std::string, double> norms;    // layer norms -> epsilon
  std::map<std::string, int64_t> tables;  // -> the row of padding, or -1
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
  const TensorPieces* Find(const std::string& leg, const TensorId& id) const;
  // As Find, but a recomputed forward also matches the plain forward.
  const TensorPieces* FindSameValue(const std::string& leg, TensorId id) const;
  const std::map<TensorId, TensorPieces>& real() const {
    return catalogs_.front()->tensors("real");
  }
  // What the forwards of the run as it was were fed.
  const FedRows& fed_rows() const { return catalogs_.front()->fed_rows(); }
  // As if of the reruns only these had been made.
  void KeepLegs(const std::vector<std::string>& reruns);
  // Replaces the records of a tensor, in every leg, by changed copies.
  void Reread(const TensorId& id,
              const std::function<void(RecordFields*)>& change);
  std::vector<std::string> Legs() const;  // sorted, of all folders
  bool HasLeg(const std::string& leg) const;
  // "noise.1", "noise.2", ... present, for prefix "noise".
  std::vector<std::string> NoiseLegs(const std::string& prefix) const;

  // The lowest floating precision among the parameters and module outputs of
  // the real leg (under autocast they differ), and what modules compute in
  // inside: what the run computes in.
  // Nothing if there are no floating tensors.
  std::optional<DType> ComputeDType() const;
  std::set<int> Iterations() const;
  // Micro-batches that one data-parallel rank runs in an iteration.
  int MicroBatchesPerRank() const;

  // Facts from notes.
  bool weights_grafted() const { return weights_grafted_; }
  bool data_grafted() const { return data_grafted_; }
  // Module fqn -> why it has no values of its own.
  const std::map<std::string, std::string>& not_materialised() const {
    return not_materialised_;
  }
  const std::vector<NotIsolated>& not_isolated() const { return not_isolated_; }
  const HandedOut& handed_out() const { return handed_out_; }
  const FusedModules& fused_modules() const { return fused_modules_; }
  // Parameter fqn -> its place in the order in which gradients are reduced, on
  // the first rank that says so; -1: unknown.
  int64_t ReductionIndex(const std::string& fqn) const;
  // What its ranks were seen to communicate, and what the code under test acts
  // by that is not as expected: of the main folder.
  const CollectiveLog& collectives() const { return collectives_; }
  const StateChanges& state_changes() const { return state_changes_; }
  const std::vector<Attribute>& attributes() const { return attributes_; }
  const SourceLines& source_lines() const { return source_lines_; }
  const EarlyReductions& early_reductions() const { return early_reductions_; }
  const std::vector<RunNote>& notes() const { return notes_; }
  // Module fqn, or that of a tensor of it -> why it is not observed.
  struct NotObserved {
    std::string reason;
    std::string way_out;
    std::string of_class;   // empty: unknown
    bool compiled = false;  // in one piece with others
  };
  const std::map<std::string, NotObserved>& not_observed() const {
    return not_observed_;
  }
  // Iterations that ended without a step.
  struct SkippedStep {
    std::set<int> cleared_on;  // ranks whose loop cleared the gradients itself
  };
  const std::map<int, SkippedStep>& skipped_steps() const {
    return skipped_steps_;
  }
  // Iterations in which data of the run's own differed and were replaced.
  const std::set<int>& replaced_data() const { return replaced_data_; }
  // Modules like the model or a part of it, which are not compared.
  int64_t models_beside() const { return models_beside_; }
  // (fqn, role) -> why capture saw such a tensor and could not record it.
  const std::map<std::pair<std::string, std::string>, std::string>&
  not_recorded() const {
    return not_recorded_;
  }
  // (fqn, role) of what capture recorded as the same on all ranks of a device
  // mesh because nothing says where it lies. Its copies tell whether it is so.
  const std::set<std::pair<std::string, Role>>& presumed_alike() const {
    return presumed_alike_;
  }
  // The class of a module as its framework calls it; empty: unknown.
  std::string ClassOf(const std::string& fqn) const;
  // What the framework's own primitive gave for the norm of a gradient as it
  // lies on a rank.
  struct GradientNorm {
    double norm = 0;  // of its values, widened to fp32 at least
    // Of a gradient of lower precision, as it is: rounded to that.
    double rounded = 0;
  };
  // Null: not known.
  const GradientNorm* FindGradientNorm(int rank, int iteration,
                                       const std::string& fqn) const;
  // A parameter whose reduced gradient could not be recorded; empty: none.
  const std::string& unrecorded_gradient() const {
    return unrecorded_gradient_;
  }
  // Facts by which two runs compute different functions if they differ, with
  // the option that settles it.
  struct ComputationFact {
    std::map<std::string, std::vector<int>> values;  // -> ranks that say so
    std::string option;
  };
  const std::map<std::string, ComputationFact>& computation() const {
    return computation_;
  }
  // (iteration, module) -> the random numbers that its own forward drew, each
  // "micro-batch:digest of the generators before and after".
  const std::map<std::pair<int, std::string>, std::set<std::string>>&
  random_draws() const {
    return random_draws_;
  }
  // Module fqn -> the precision that it computes in inside, where that is lower
  // than what goes in and out.
  const std::map<std::string, DType>& precision_inside() const {
    return precision_inside_;
  }
  const TokenSums& token_sums() const { return token_sums_; }
  // How gradients are reduced, where the run has a function of its own for it.
  const std::optional<ReductionHook>& reduction_hook() const {
    return reduction_hook_;
  }
  // Whether its loop may divide where capture does not see it: in the loss, in
  // the reduction or behind it.
  bool loss_unit_unknown() const { return loss_unit_unknown_; }
  // What the user asked to be recorded (--select); empty: everything.
  const std::string& selection() const { return selection_; }
  // Every rank that left a trace ran this iteration to its end.
  bool Completed(int iteration) const;
  // Why the trace cannot be complete; empty if it is.
  const std::vector<std::string>& defects() const { return defects_; }

 private:
  void Add(std::shared_ptr<const Trace> trace);
  void ReadNotes(const Trace& trace);
  void ReadNote(int rank, const std::string& kind, const nlohmann::json& json);
  void FindCutLegs(const Catalog& catalog);
  static bool LegCompleted(const Catalog& catalog, const std::string& leg,
                           int iteration);
  void ReadNotIsolated(const Trace& trace);
  void ReadTermsOfReductions();
  void FindDefects(const Trace& trace);
  void NoteUnfinishedSums(const Catalog& catalog);

  bool Keeps(const std::string& leg) const;

  std::vector<std::shared_ptr<Catalog>> catalogs_;    // the main one first
  std::optional<std::set<std::string>> kept_reruns_;  // nothing: all
  std::map<std::string, std::string> not_materialised_;
  std::vector<NotIsolated> not_isolated_;
  HandedOut handed_out_;
  FusedModules fused_modules_;
  std::map<std::string, int64_t> reduction_index_;
  CollectiveLog collectives_;
  StateChanges state_changes_;
  std::vector<Attribute> attributes_;
  EarlyReductions early_reductions_;
  std::vector<RunNote> notes_;
  std::map<std::string, NotObserved> not_observed_;
  std::map<std::pair<std::string, std::string>, std::string> not_recorded_;
  std::set<std::pair<std::string, Role>> presumed_alike_;
  std::map<std::string, std::string> classes_;
  std::map<std::tuple<int, int, std::string>, GradientNorm> gradient_norms_;
  std::map<std::string, ComputationFact> computation_;
  std::map<std::pair<int, std::string>, std::set<std::string>> random_draws_;
  std::map<std::string, DType> precision_inside_;
  TokenSums token_sums_;
  std::string unrecorded_gradient_;
  std::string selection_;
  std::set<std::pair<std::string, int>> cut_legs_;  // (leg, iteration)
  std::vector<std::string> defects_;
  std::optional<ReductionHook> reduction_hook_;
  bool weights_grafted_ = false;
  bool data_grafted_ = false;
  bool loss_unit_unknown_ = false;
  SourceLines source_lines_;
  std::map<int, SkippedStep> skipped_steps_;
  std::set<int> replaced_data_;
  int64_t models_beside_ = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_SIDE_H_
