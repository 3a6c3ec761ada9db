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
#include "src/diagnose/diagnose.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

constexpr int64_t kSampled = 1 << 18;
// A few wrong elements fit one number by chance.
constexpr size_t kFewest = 16;

struct Suspect {
  std::string words;
  const TensorPieces* pieces = nullptr;
};

void Add(const std::string& words, const TensorPieces* pieces,
         std::vector<Suspect>* out) {
  if (pieces != nullptr) out->push_back({words, pieces});
}

// What the memory of this tensor may have held before.
std::vector<Suspect> Suspects(const Evidence& evidence) {
  std::vector<Suspect> out;
  const TensorId own = evidence.judgement->id;
  TensorId id = own;
  id.iteration = own.iteration - 1;
  id.pass = Pass::kBackward;
  const std::string before = fmt::format("of iteration {}", id.iteration);
  if (own.iteration > 0) {
    for (const Role role : {Role::kGradReduced, Role::kGradLocal}) {
      id.role = role;
      const std::string words = fmt::format("{} {}", ToString(role), before);
      Add("its own " + words, evidence.find_candidate(id), &out);
      Add("the reference's " + words, evidence.find_reference(id), &out);
    }
    id = own;
    id.iteration = own.iteration - 1;
    Add(fmt::format("its own value {}", before), evidence.find_candidate(id),
        &out);
  }
  id = own;
  for (id.iteration = own.iteration - 1; id.iteration >= 0; --id.iteration) {
    id.role = Role::kParamUpdated;
    for (const Pass pass : {Pass::kOptimizer, Pass::kForward}) {
      id.pass = pass;
      Add(fmt::format("the parameter after the step of iteration {}",
                      id.iteration),
          evidence.find_candidate(id), &out);
    }
  }
  id.role = Role::kParam;
  id.pass = Pass::kForward;
  for (id.iteration = own.iteration; id.iteration >= 0; --id.iteration) {
    Add("the parameter itself", evidence.find_candidate(id), &out);
  }
  return out;
}

}  // namespace

std::optional<Diagnosis> Leftover(const Evidence& evidence) {
  const Role role = evidence.judgement->id.role;
  if (evidence.leg == nullptr || evidence.reference == nullptr ||
      evidence.candidate == nullptr ||
      (role != Role::kGradLocal && role != Role::kGradReduced)) {
    return std::nullopt;
  }
  const auto pair = SamplePair(*evidence.reference, *evidence.candidate,
                               kSampled, evidence.compare);
  if (!pair.ok()) return std::nullopt;
  const double bound = evidence.leg->bound;
  const std::vector<size_t> wrong = WrongElements(*pair, bound);
  if (wrong.size() < kFewest) return std::nullopt;
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
  for (const Suspect& suspect : Suspects(evidence)) {
    if (suspect.pieces->global_shape() != evidence.reference->global_shape()) {
      continue;
    }
    const auto values = ReadKept(*suspect.pieces, pair->boxes);
    if (!values.ok()) continue;
    double dot = 0;
    double suspect_sq = 0;
    for (const size_t i : wrong) {
      const double error = pair->candidate[i] - pair->reference[i];
      dot += error * (*values)[i];
      suspect_sq += (*values)[i] * (*values)[i];
    }
    if (!(suspect_sq > 0)) continue;
    const double alpha = dot / suspect_sq;
    const double rest = std::fmax(0, error_sq - dot * alpha);
    // The rest is noise (4 x bound, as of single elements), and no more than 1
    // % of the error: gradients of two iterations are alike, and some of an
    // unrelated error always lies along another tensor.
    if (rest > 16 * bound * bound * size_sq || rest > 1e-2 * error_sq ||
        !(std::fabs(alpha) > bound)) {
      continue;
    }
    return Diagnosis{
        BugClass::kStaleValue,
        fmt::format("candidate minus reference is {:.4g} x {} ({:.3g} % of the "
                    "error of {} wrong elements of {} looked at): something "
                    "old was added to, not replaced{}",
                    alpha, suspect.words, 100 * (1 - rest / error_sq),
                    wrong.size(), pair->reference.size(), SampleWords(*pair)),
        alpha};
  }
  return std::nullopt;
}

}  // namespace ttrace
