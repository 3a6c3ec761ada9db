// What is known about one logical tensor after comparing it: per leg the error,
// its bound and where the bound came from; its replicas; the verdict.
//
// headroom = error / bound: above 1 is diverged, 0.5 to 1 suspect.

#ifndef TTRACE_SRC_JUDGE_JUDGEMENT_H_
#define TTRACE_SRC_JUDGE_JUDGEMENT_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/error_stats.h"
#include "src/judge/outcome.h"
#include "src/judge/reason.h"
#include "src/judge/test.h"
#include "src/measure/padding_gradient.h"
#include "ttrace/leg.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// One leg's comparison: "real" (the user's run against the reference's), "fp32"
// (both sides rerun in fp32), "isolated" and "fp32.isolated" (the candidate
// rerun with every module's inputs and arriving gradients replaced by the
// reference's).
struct LegJudgement {
  Leg leg;
  // All tests made; the norm's first if there is one.
  std::vector<Test> tests;
  int deciding_test = -1;  // of the largest headroom; -1: none was made
  // Of the norm: ||cand - ref|| / ||ref||, the rms of the same over the noise
  // legs, and what it may be.
  double err = 0;
  double noise = 0;
  double bound = 0;
  double headroom = 0;    // of the deciding test
  bool checkable = true;  // by the norm's bound
  // A sum whose terms cancel to zero but for rounding, in the reference: it has
  // no other test than its norm's.
  bool zero_sum = false;
  ErrorStats stats;  // candidate against the reference in this leg
  // Ranks that hold an instance whose own error is out of bounds, sorted.
  std::vector<int> ranks;
  // Of rows that a router chose.
  std::optional<RoutedTokens> routed;
  // Of a routing map that was judged by its scores: tokens, those that were
  // routed otherwise, and those of them that round-off explains.
  struct Flips {
    int64_t tokens = 0;
    int64_t flipped = 0;
    int64_t tied = 0;
    bool all_tied() const { return flipped == tied; }
  };
  std::optional<Flips> flips;
  // What the errors are of. Of an estimate that the bound lies within: nothing
  // is said, and `uncertain`.
  Fidelity fidelity = Fidelity::kValues;
  bool reordered = false;  // TensorComparison::reordered
  bool uncertain = false;
  // Elements that are finite in one run alone may be overflows of fp16
  // (skipped_steps.h): they are no finding, and the rest no evidence.
  bool overflow = false;
  // Reduced in a precision that is not known: nothing is said of its values.
  bool reduction_unknown = false;

  const Test* deciding() const {
    return deciding_test < 0 ? nullptr
                             : &tests[static_cast<size_t>(deciding_test)];
  }
  // The test of the whole tensor by `statistic`, or null.
  const Test* Find(Statistic statistic) const;
  // Adds a test, which decides if its headroom is the largest.
  void Add(Test test);

  bool nonfinite_by_fault() const {
    return stats.nonfinite_differ > 0 && !overflow;
  }

  // Of the statistic that decides.
  double deciding_err() const {
    return deciding() == nullptr ? err : deciding()->value;
  }
  double deciding_bound() const {
    return deciding() == nullptr ? bound : deciding()->bound;
  }
};

// Why a leg has no usable bound.
Reason WhyNotCheckable(const LegJudgement& leg);

struct TensorJudgement : Outcome {
  TensorId id;
  // Place in the order of execution over all tensors; smaller is earlier.
  int64_t order = 0;
  std::vector<LegJudgement> legs;  // "real" first, isolated ones last
  bool replicas_differ = false;
  ReplicaComparison replicas;  // of the candidate, in its real leg
  // A replay of the candidate against its real leg; nothing if not replayed.
  struct Repeat {
    bool bitwise = true;
    double err = 0;  // rel_err
  };
  std::optional<Repeat> repeat;
  // The verdict of the isolated legs alone; nothing if the candidate has none
  // of this tensor. `verdict` above never depends on it.
  struct Isolated {
    TensorVerdict verdict = TensorVerdict::kNotCheckable;
    int deciding_leg = -1;  // index into legs; -1: no leg is checkable
    double headroom = 0;    // of the deciding leg
    // An edge (input, grad_output): it was replaced after it was recorded. No
    // leg replaces data: what the model itself is given, and indices.
    // Anything else: all that its module works on was replaced. If not, an
    // error may have come from outside, and `verdict` convicts nobody.
    bool replaced = true;
    bool replicas_differ = false;  // copies differ in an isolated leg as well
    std::vector<int> ranks;        // that hold a faulty instance; empty: all
    Reason reason;                 // why not checkable or not replaced
  };
  std::optional<Isolated> isolated;
  // A buffer that forwards of earlier iterations made what it is. It is out of
  // bounds honestly where a rank makes it of its own rows and nothing is
  // computed with it: not `diverged`, and `carried_out` for whoever finds that
  // something is (localize/carried_buffers.h).
  bool carried = false;
  bool carried_out() const {
    return carried && reason.kind == ReasonKind::kOwnStatistic;
  }
  PaddingGradient padding_gradient;
  // A replay of the candidate differs from its real leg by more than the
  // reference's own does.
  bool not_repeatable = false;
  // The reference's values are all zero: nothing wrong would show in them.
  bool all_zero = false;

  // What is said of it from now on.
  void Conclude(Outcome outcome) {
    static_cast<Outcome&>(*this) = std::move(outcome);
  }

  bool not_updated() const { return reason.kind == ReasonKind::kNotUpdated; }
  // By its own step: not what its inputs make it.
  bool step_differs() const { return reason.kind == ReasonKind::kStepDiffers; }
  // Out of bound in an isolated leg, by its own fault or not.
  bool out_isolated() const {
    return isolated && isolated->verdict == TensorVerdict::kDiverged;
  }
  // An isolated leg has a bound for it, and nothing from outside came in.
  bool judged_isolated() const {
    return isolated && isolated->verdict != TensorVerdict::kNotCheckable &&
           isolated->verdict != TensorVerdict::kUnmatched &&
           (isolated->replaced || IsEdge(id.role));
  }
  const LegJudgement* deciding() const { return Leg(deciding_leg); }
  // The leg whose evidence is the cleanest: an isolated one if it convicts,
  // because no error of another module is in it.
  const LegJudgement* convicting() const {
    if (out_isolated() && judged_isolated() && isolated->deciding_leg >= 0) {
      return Leg(isolated->deciding_leg);
    }
    return deciding();
  }

 private:
  const LegJudgement* Leg(int index) const {
    return index < 0 ? nullptr : &legs[static_cast<size_t>(index)];
  }
};

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_JUDGEMENT_H_
