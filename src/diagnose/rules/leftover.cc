// S: the candidate is the reference plus something that was there before.
//
// A buffer that is not zeroed adds what it held: last iteration's gradient, or
// the parameter itself where both share memory. Only elements that are wrong
// are looked at, because often only a part of a buffer is not zeroed: their
// error has to be alpha times one recorded tensor of the same name.

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

struct Source {
  std::string words;
  const TensorPieces* pieces = nullptr;
};

void Add(const std::string& words, const TensorPieces* pieces,
         std::vector<Source>* out) {
  if (pieces != nullptr) out->push_back({words, pieces});
}

// What the memory of this tensor may have held before.
std::vector<Source> Sources(const ValueView& view) {
  std::vector<Source> out;
  const TensorId own = view.id();
  TensorId id = own;
  id.iteration = own.iteration - 1;
  id.pass = Pass::kBackward;
  const std::string before = fmt::format("of iteration {}", id.iteration);
  if (own.iteration > 0) {
    for (const Role role : {Role::kGradReduced, Role::kGradLocal}) {
      id.role = role;
      const std::string words = fmt::format("{} {}", ToString(role), before);
      Add("its own " + words, view.evidence().find_candidate(id), &out);
      Add("the reference's " + words, view.evidence().find_reference(id), &out);
    }
    id = own;
    id.iteration = own.iteration - 1;
    Add(fmt::format("its own value {}", before),
        view.evidence().find_candidate(id), &out);
  }
  id = own;
  for (id.iteration = own.iteration - 1; id.iteration >= 0; --id.iteration) {
    id.role = Role::kParamUpdated;
    for (const Pass pass : {Pass::kOptimizer, Pass::kForward}) {
      id.pass = pass;
      Add(fmt::format("the parameter after the step of iteration {}",
                      id.iteration),
          view.evidence().find_candidate(id), &out);
    }
  }
  id.role = Role::kParam;
  id.pass = Pass::kForward;
  for (id.iteration = own.iteration; id.iteration >= 0; --id.iteration) {
    Add("the parameter itself", view.evidence().find_candidate(id), &out);
  }
  return out;
}

}  // namespace

std::optional<Diagnosis> Leftover(const ValueView& view) {
  const Role role = view.id().role;
  if (role != Role::kGradLocal && role != Role::kGradReduced) {
    return std::nullopt;
  }
  const std::vector<size_t>& wrong = view.wrong();
  if (wrong.size() < kFewestFitted) return std::nullopt;
  const SampledPair* pair = view.sample();
  const double bound = view.bound();
  double error_sq = 0;
  double size_sq = 0;  // what the noise of these elements is relative to
  double all_sq = 0;
  for (const double value : pair->reference) {
    if (std::isfinite(value)) all_sq += value * value;
  }
  const double mean_sq = all_sq / static_cast<double>(pair->reference.size());
  for (const size_t i : wrong) {
    const double error = pair->candidate[i] - pair->reference[i];
    error_sq += error * error;
    size_sq += std::fmax(pair->reference[i] * pair->reference[i], mean_sq);
  }
  const double noise_sq = kSlack * kSlack * bound * bound * size_sq;
  for (const Source& source : Sources(view)) {
    if (source.pieces->global_shape() != view.reference().global_shape()) {
      continue;
    }
    const auto values = ReadKept(*source.pieces, pair->boxes);
    if (!values.ok()) continue;
    double dot = 0;
    double source_sq = 0;
    for (const size_t i : wrong) {
      const double error = pair->candidate[i] - pair->reference[i];
      dot += error * (*values)[i];
      source_sq += (*values)[i] * (*values)[i];
    }
    if (!(source_sq > 0)) continue;
    const double alpha = dot / source_sq;
    const double rest = std::fmax(0, error_sq - dot * alpha);
    // The rest is noise, and a small part of the error.
    if (rest > noise_sq || rest > kMostRest * error_sq ||
        !(std::fabs(alpha) > bound)) {
      continue;
    }
    return Diagnosis{
        BugClass::kStaleValue,
        fmt::format("candidate minus reference is {:.4g} x {} ({:.3g} % of the "
                    "error of {} wrong elements of {} looked at): something "
                    "old was added to, not replaced{}",
                    alpha, source.words, 100 * (1 - rest / error_sq),
                    wrong.size(), pair->reference.size(), SampleWords(*pair)),
        alpha};
  }
  return std::nullopt;
}

}  // namespace ttrace
