// What a run noted of itself, decoded once.
//
// Notes are JSON that anybody may have written. Here each kind that a check
// decides by becomes a field of its own; what a reader is told of notes is
// gather_notes.h.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_EXPERIMENT_RUN_FACTS_H_
#define TTRACE_SRC_EXPERIMENT_RUN_FACTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/align/attribute.h"
#include "src/align/collective.h"
#include "src/experiment/cleared_gradients.h"
#include "src/experiment/early_reductions.h"
#include "src/experiment/escaped_parameters.h"
#include "src/experiment/fused_modules.h"
#include "src/experiment/gradients_not_found.h"
#include "src/experiment/reduction_hook.h"
#include "src/experiment/rounding.h"
#include "src/experiment/source_lines.h"
#include "src/experiment/state_changes.h"
#include "src/trace/reader.h"
#include "ttrace/dtype.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

struct ParsedNote;

// Modules whose parameters' gradients are sums over tokens of what goes through
// their edges, and of nothing else.
struct TokenSums {
  std::map<std::string, double> norms;    // layer norms -> epsilon
  std::map<std::string, int64_t> tables;  // -> the row of padding, or -1
};

struct NotObserved {
  std::string reason;
  std::string way_out;
  std::string of_class;   // empty: unknown
  bool compiled = false;  // in one piece with others
};

// An iteration that ended without a step.
struct SkippedStep {
  std::set<int> cleared_on;  // ranks whose loop cleared the gradients itself
};

// What the framework's own primitive gave for the norm of a gradient as it lies
// on a rank.
struct GradientNorm {
  double norm = 0;  // of its values, widened to fp32 at least
  // Of a gradient of lower precision, as it is: rounded to that.
  double rounded = 0;
};

// By which two runs compute different functions if they differ.
struct ComputationFact {
  std::map<std::string, std::vector<int>> values;  // -> ranks that say so
  std::string option;                              // that settles it
};

struct RunFacts {
  bool weights_grafted = false;
  bool data_grafted = false;
  // Iterations in which data of the run's own differed and were replaced.
  std::set<int> replaced_data;
  // Iterations in which a loop calls its model without gradients, too: to
  // generate what it learns from, or to evaluate it.
  std::set<int> called_without_gradients;

  std::map<std::string, std::string> classes;  // of modules
  // Modules that a loop calls apart from each other; empty: "", the model.
  std::set<std::string> roots;
  SourceLines source_lines;
  // Module fqn -> why it has no values of its own.
  std::map<std::string, std::string> not_materialised;
  // Module fqn, or that of a tensor of it -> why it is not observed.
  std::map<std::string, NotObserved> not_observed;
  EscapedParameters escaped_parameters;
  FusedModules fused_modules;
  // Module fqn -> the precision that it computes in inside, where that is lower
  // than what goes in and out.
  std::map<std::string, DType> precision_inside;
  TokenSums token_sums;
  // Modules like the model or a part of it, which are not compared.
  int64_t models_beside = 0;

  // (fqn, role) -> why capture saw such a tensor and could not record it.
  std::map<std::pair<std::string, std::string>, std::string> not_recorded;
  // A parameter whose reduced gradient could not be recorded; empty: none.
  std::string unrecorded_gradient;
  // (fqn, role) of what capture recorded as the same on all ranks of a device
  // mesh because nothing says where it lies. Its copies tell whether it is so.
  std::set<std::pair<std::string, Role>> presumed_alike;
  std::string selection;  // that was asked for (--select); empty: everything

  // (rank, iteration, fqn)
  std::map<std::tuple<int, int, std::string>, GradientNorm> gradient_norms;
  // (rank, iteration, fqn) -> what that rank's micro-batches add to its local
  // gradient, as its framework makes it.
  std::map<std::tuple<int, int, std::string>, GradientParts> gradient_parts;
  // Parameter fqn -> its place in the order in which gradients are reduced, on
  // the first rank that says so.
  std::map<std::string, int64_t> reduction_index;
  // How gradients are reduced, where the run has a function of its own for it.
  std::optional<ReductionHook> reduction_hook;
  EarlyReductions early_reductions;
  ClearedGradients cleared_gradients;
  GradientsNotFound absent_gradients;
  // What its ranks were seen to communicate.
  CollectiveLog collectives;
  // Whether its loop may divide where capture does not see it: in the loss, in
  // the reduction or behind it.
  bool loss_unit_unknown = false;

  std::map<int, SkippedStep> skipped_steps;  // by iteration
  StateChanges state_changes;
  // What the code under test acts by that is not as expected.
  std::vector<Attribute> attributes;
  std::map<std::string, ComputationFact> computation;
  // (iteration, module) -> the random numbers that its own forward drew, each
  // "micro-batch:digest of the generators before and after".
  std::map<std::pair<int, std::string>, std::set<std::string>> random_draws;

  // As its framework calls it; empty: unknown.
  std::string ClassOf(const std::string& module) const;
  // Whether the loop itself calls it.
  bool IsRoot(const std::string& module) const;
  // -1: unknown.
  int64_t ReductionIndex(const std::string& fqn) const;
  // Null: not known.
  const GradientNorm* FindGradientNorm(int rank, int iteration,
                                       const std::string& fqn) const;
  const GradientParts* FindGradientParts(int rank, int iteration,
                                         const std::string& fqn) const;
};

// All but what single notes say by themselves, which is added note by note.
RunFacts ReadRunFacts(const Trace& trace);
bool MakesRunFact(const std::string& kind);
void AddRunFact(const ParsedNote& note, RunFacts* facts);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_RUN_FACTS_H_
