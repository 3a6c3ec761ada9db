// K: the candidate is alpha times the reference, and alpha is no noise. Asked
// of each rank's and micro-batch's part, so that one part that is scaled among
// parts that are right is seen too.

#include <fmt/format.h>

#include <cmath>

#include "src/base/rank_words.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/scaled_parts.h"
#include "src/diagnose/words.h"

namespace ttrace {

std::optional<Diagnosis> ConstantFactor(const ValueView& view) {
  const double bound = view.bound();
  const ScaledParts* parts = view.factors();
  if (parts == nullptr || !parts->agree) return std::nullopt;
  const double alpha = parts->alpha;
  Diagnosis out{BugClass::kConstantFactor, "", alpha};
  // Beyond the bound it is at most what sums cannot tell (scaled_parts.h).
  out.evidence = fmt::format(
      "it is {:.5g} x the reference (what the factor does not explain is "
      "{:.1e} of it, {})",
      alpha, parts->worst_residual,
      parts->worst_residual <= bound
          ? fmt::format("the bound {:.1e}", bound)
          : "less than 1 % of the difference, where sums in float32 tell no "
            "rest");
  if (parts->right > 0) {
    out.evidence += fmt::format(" on {}, and right elsewhere",
                                parts->ranks_differ
                                    ? RankWords(parts->ranks)
                                    : MicroBatchWords(parts->micro_batches));
  }
  // By Cauchy-Schwarz an error within the bound moves alpha by no more than it.
  out.evidence += FactorNameWords(view.evidence(), alpha, bound);
  out.evidence += AttributeWords(view.evidence(), "gradient_scaling_factor");
  if (parts->shared_with > 0) {
    out.evidence += fmt::format(
        "; it is too small to have a factor by itself, and this is that of all "
        "{} larger tensors that are out of bounds beside it",
        parts->shared_with);
  }
  if (parts->sampled > 0) {
    out.evidence += SampleWords(static_cast<size_t>(parts->sampled));
  }
  return out;
}

}  // namespace ttrace
