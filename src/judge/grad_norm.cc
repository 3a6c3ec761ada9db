#include "src/judge/grad_norm.h"

#include <fmt/format.h>

#include <cmath>

#include "src/compare/compare_tensor.h"
#include "src/judge/constants.h"

namespace ttrace {

Status JudgeGradNorms(const Side& candidate,
                      std::vector<TensorJudgement>* tensors) {
  for (TensorJudgement& t : *tensors) {
    if (t.id.role != Role::kGradNorm) continue;
    const TensorPieces* reported = candidate.Find("real", t.id);
    double sum = 0;
    bool any = false;
    for (const auto& [id, pieces] : candidate.real()) {
      if (id.role != Role::kGradReduced || id.iteration != t.id.iteration) {
        continue;
      }
      TTRACE_ASSIGN_OR_RETURN(const double squares, SumOfSquares(pieces));
      sum += squares;
      any = true;
    }
    const Shape shape = reported->global_shape();
    TTRACE_ASSIGN_OR_RETURN(const auto values,
                            ReadBox(*reported, Shape(shape.size(), 0), shape));
    if (!any || values.size() != 1) {
      t.verdict = TensorVerdict::kNotCheckable;
      t.reason = "no reduced gradients to recompute it from";
      continue;
    }
    const double expected = std::sqrt(sum);
    LegJudgement leg;
    leg.leg = "real";
    leg.err = expected == values[0]
                  ? 0
                  : std::fabs(values[0] - expected) / std::fabs(expected);
    leg.bound = kGradNormBound;
    leg.headroom = leg.err / leg.bound;
    leg.provenance = "recomputed from the candidate's reduced gradients";
    t.headroom = leg.headroom;
    t.legs = {leg};
    t.deciding_leg = 0;
    if (!(leg.headroom <= 1)) {
      t.verdict = TensorVerdict::kDiverged;
      t.reason = fmt::format(
          "the optimizer reports {:.9g}; the norm of the reduced gradients is "
          "{:.9g}",
          values[0], expected);
    } else if (!t.replicas_differ) {
      t.verdict =
          leg.err == 0 ? TensorVerdict::kBitwiseEqual : TensorVerdict::kWithin;
    }
  }
  return Done{};
}

}  // namespace ttrace
