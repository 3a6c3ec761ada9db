// CheckResult: all that a check found. Every rendering (terminal, JSON) is a
// pure function of it.

#ifndef TTRACE_SRC_REPORT_CHECK_RESULT_H_
#define TTRACE_SRC_REPORT_CHECK_RESULT_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/experiment/run_note.h"
#include "src/judge/judgement.h"
#include "src/localize/causes.h"
#include "src/localize/culprit.h"
#include "ttrace/dtype.h"
#include "ttrace/layout.h"
#include "ttrace/leg.h"
#include "ttrace/mesh.h"

namespace ttrace {

enum class Verdict : uint8_t {
  kBitwiseEqual,
  kWithin,
  kDiverged,
  kInconclusive,
};
std::string_view ToString(Verdict verdict);
// 0 bitwise equal or within, 1 diverged, 2 inconclusive: as diff(1).
int ExitCode(Verdict verdict);

struct Coverage {
  int64_t compared = 0;
  int64_t reference_only = 0;              // unexplained ones
  int64_t candidate_only = 0;              // unexplained ones
  std::map<std::string, int64_t> excused;  // reason -> count

  int64_t excused_count() const {
    int64_t count = 0;
    for (const auto& [reason, of_it] : excused) count += of_it;
    return count;
  }
};

// One way in which the ranks of a run lie: its mesh, or a view of it.
struct GridSummary {
  std::string name;  // "mesh", or its dimensions' names
  DeviceMesh mesh;
  // Of each rank, parallel to the mesh's dimensions; of a missing rank nothing.
  std::vector<Coordinate> coordinates;
};

struct SideSummary {
  std::string folder;
  std::string mesh;  // "pp=1 dp=1 cp=1 tp=2", or "1 process"
  int world_size = 0;
  std::vector<Leg> legs;
  std::vector<GridSummary> grids;  // the mesh first
};

// What a tensor is made of.
struct TensorForm {
  Shape shape;  // of the whole logical tensor
  std::optional<DType> dtype;
};

// A module of the candidate, and where a reader of its code looks: at its
// class, or, of one of torch's, at the class that uses it.
struct ModuleSummary {
  std::string fqn;
  std::string class_name;
  std::string file;  // empty: not known
  int64_t line = 0;
};

// How many tensors of one kind are in bounds: "forward" 1820 of 1820.
struct CleanCount {
  std::string kind;  // forward, backward, gradient, update
  int64_t clean = 0;
  int64_t of = 0;
  // Neither clean nor diverged: not checkable end to end. Those of them that
  // the isolated legs judge, and why the first is not checkable.
  int64_t open = 0;
  int64_t open_but_isolated = 0;
  Reason first_open = {};
};

// What the isolated legs of the candidate said.
struct IsolationSummary {
  bool ran = false;    // the candidate has an isolated leg
  int64_t judged = 0;  // tensors judged in isolation
  int64_t of = 0;      // tensors that an isolated leg has
  int64_t faulty = 0;  // culprits that isolation names
  // Culprits that only isolation or, though isolation looked there, only
  // dataflow names.
  int64_t hidden = 0;
  int64_t disputed = 0;
  // Not checkable end to end, but judged in isolation.
  int64_t rescued = 0;
};

// Routing maps that were judged by their scores, end to end.
struct RoutingSummary {
  int64_t tokens = 0;     // decisions, of all routers and iterations
  int64_t otherwise = 0;  // that differ between the runs
  int64_t tied = 0;       // of these, within round-off
};

struct CheckResult {
  Verdict verdict = Verdict::kInconclusive;
  std::string reason;  // one line
  bool has_reference = true;
  SideSummary reference;
  SideSummary candidate;
  std::vector<int> iterations;
  Coverage coverage;
  std::vector<RunNote> notes;     // what matters most first
  std::vector<Culprit> culprits;  // earliest first
  // Diverged tensors that no culprit's own fault explains but that come after
  // one: "downstream".
  // Those that other evidence contradicts: no findings, but no pass either.
  std::vector<Culprit> contested;
  int64_t downstream = 0;
  IsolationSummary isolation;
  RoutingSummary routing;
  std::vector<CleanCount> clean;
  int64_t suspects = 0;
  int64_t not_checkable = 0;  // neither end to end nor isolated
  // Compared tensors by what their first leg was compared by (Fidelity).
  std::array<int64_t, 3> by_fidelity = {};
  int64_t tests = 0;     // that the risk was divided over
  bool bitwise = false;  // it was asked whether bits are equal, no more
  double risk = 0;       // of flagging a clean run
  std::vector<TensorJudgement> tensors;  // by order
  // Parallel to `tensors`; empty: not known.
  std::vector<TensorForm> forms;
  std::vector<TensorCause> causes;
  std::vector<ModuleSummary> modules;   // by name
  std::vector<std::string> next_steps;  // commands or advice
  double seconds = 0;
  int64_t bytes_compared = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_CHECK_RESULT_H_
