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
#include <string_view>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/error_stats.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

enum class TensorVerdict : uint8_t {
  kBitwiseEqual,
  kWithin,
  kSuspect,
  kDiverged,
  kNotCheckable,  // the bound is too wide to mean anything, or none exists
  kUnmatched,     // one side does not have it
};
std::string_view ToString(TensorVerdict verdict);

// What is measured of an error. The norm sees what is wrong everywhere, the
// maxima what is wrong in a few elements of many.
enum class Statistic : uint8_t { kNorm, kElement, kBlock };
std::string_view ToString(Statistic statistic);

// The largest error of one element, |cand - ref| / (|ref| + rms of ref), or of
// one block of elements, its norm over that of the whole reference.
struct MaximumJudgement {
  bool judged = false;  // false: all else is meaningless
  double err = 0;
  double noise = 0;  // largest of the noise legs
  // As in LegJudgement.
  double err_hp = std::numeric_limits<double>::quiet_NaN();
  double ref_err_hp = std::numeric_limits<double>::quiet_NaN();
  double bound = 0;
  double headroom = 0;
};

// One leg's comparison: "real" (the user's run against the reference's), "fp32"
// (both sides rerun in fp32), "isolated" and "fp32.isolated" (the candidate
// rerun with every module's inputs and arriving gradients replaced by the
// reference's).
struct LegJudgement {
  std::string leg;
  double err = 0;    // ||cand - ref|| / ||ref||
  double noise = 0;  // rms of the same over the noise legs of the reference
  // Errors against the reference's fp32 leg; NaN where there is none.
  double err_hp = std::numeric_limits<double>::quiet_NaN();
  double ref_err_hp = std::numeric_limits<double>::quiet_NaN();
  double bound = 0;  // what `err` may be
  // The largest of the norm's and of both maxima's; `decides` says whose.
  double headroom = 0;
  Statistic decides = Statistic::kNorm;
  MaximumJudgement element;
  MaximumJudgement block;
  bool checkable = true;   // by the norm's bound
  std::string provenance;  // "3 noise legs, rms 4.1e-3 x 2"
  ErrorStats stats;        // candidate against the reference in this leg
  // Ranks that hold an instance whose own error exceeds the bound, sorted.
  std::vector<int> ranks;

  // Of the statistic that decides.
  double deciding_err() const {
    return decides == Statistic::kNorm      ? err
           : decides == Statistic::kElement ? element.err
                                            : block.err;
  }
  double deciding_bound() const {
    return decides == Statistic::kNorm      ? bound
           : decides == Statistic::kElement ? element.bound
                                            : block.bound;
  }
};

struct TensorJudgement {
  TensorId id;
  // Place in the order of execution over all tensors; smaller is earlier.
  int64_t order = 0;
  TensorVerdict verdict = TensorVerdict::kUnmatched;
  std::vector<LegJudgement> legs;  // "real" first, isolated ones last
  // Index into legs of the end-to-end leg with the largest headroom.
  int deciding_leg = -1;
  double headroom = 0;  // of the deciding leg
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
    std::string reason;            // why not checkable or not replaced
  };
  std::optional<Isolated> isolated;
  bool nonfinite = false;  // NaN or Inf where the reference has none
  // A parameter that a step left as it was; `reason` says how that is known.
  bool not_updated = false;
  std::string reason;      // why not checkable, unmatched, or explained
  bool explained = false;  // unmatched, and `reason` says why that is right
  std::vector<int> ranks;  // that hold a faulty instance; empty: all

  bool diverged() const { return verdict == TensorVerdict::kDiverged; }
  // Out of bound in an isolated leg, by its own fault or not.
  bool out_alone() const {
    return isolated && isolated->verdict == TensorVerdict::kDiverged;
  }
  // An isolated leg has a bound for it, and nothing from outside came in.
  bool judged_alone() const {
    return isolated && isolated->verdict != TensorVerdict::kNotCheckable &&
           isolated->verdict != TensorVerdict::kUnmatched &&
           (isolated->replaced || IsEdge(id.role));
  }
  const LegJudgement* deciding() const { return Leg(deciding_leg); }
  // The leg whose evidence is the cleanest: an isolated one if it convicts,
  // because no error of another module is in it.
  const LegJudgement* convicting() const {
    if (out_alone() && judged_alone() && isolated->deciding_leg >= 0) {
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
