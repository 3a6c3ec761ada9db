#include "src/diagnose/sum_of_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "src/base/rank_words.h"
#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/suspect.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

constexpr int64_t kSampled = 1 << 16;  // elements
constexpr size_t kFewestWrong = 16;    // as in leftover.cc

std::string Join(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " x "));
}

int SizeOf(const Evidence& evidence, const std::string& name) {
  const int dim = evidence.candidate_mesh->Find(name);
  return dim < 0 ? 1
                 : evidence.candidate_mesh->dims[static_cast<size_t>(dim)].size;
}

// All non-empty subsets, larger ones last: the simplest sum that explains the
// reference is the one that is missing.
std::vector<std::vector<std::string>> Subsets(
    const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> out;
  const size_t n = std::min<size_t>(names.size(), 4);
  for (size_t bits = 1; bits < (size_t{1} << n); ++bits) {
    std::vector<std::string> subset;
    for (size_t i = 0; i < n; ++i) {
      if ((bits >> i & 1) != 0) subset.push_back(names[i]);
    }
    out.push_back(std::move(subset));
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.size() < b.size();
  });
  return out;
}

std::string SumWords(int copies, int divisor,
                     const std::vector<std::string>& over) {
  if (divisor == 1) {
    return fmt::format(
        "their sum equals the reference: a sum over {} is "
        "missing",
        Join(over));
  }
  if (divisor == copies) {
    return fmt::format(
        "their mean equals the reference: a mean over {} is "
        "missing",
        Join(over));
  }
  return fmt::format(
      "their sum over {} divided by {} equals the reference: each was summed "
      "over {} of {} ranks only",
      Join(over), divisor, divisor, copies);
}

// What is looked at: the whole tensor, or a sample of the elements that are
// wrong.
struct Looked {
  std::vector<SampledBox> boxes;  // empty: the whole tensor
  std::vector<double> reference;
  std::vector<size_t> wrong;
  // How far copies are apart; of digests, which do not tell, how far these are
  // off in one copy.
  double apart = 0;
  std::string sample;  // words, where values were not kept
};

// Copies differ, and it is not known by how much.
bool AreDigests(const Evidence& evidence) {
  return evidence.judgement->replicas.worst_rel_err == 0 &&
         !GivesValues(*evidence.candidate);
}

// Nothing if too few elements are wrong to tell; or if all are, of a tensor
// that was asked about as a whole.
std::optional<Looked> WrongOnes(const Evidence& evidence) {
  const auto suspect = FindSuspect(evidence);
  if (!suspect) return std::nullopt;
  auto pair = SamplePair(*evidence.reference, suspect->pieces, kSampled,
                         evidence.compare);
  if (!pair.ok()) return std::nullopt;
  Looked out;
  out.apart = evidence.judgement->replicas.worst_rel_err;
  out.wrong = WrongElements(*pair, evidence.leg->bound);
  if (out.wrong.size() < kFewestWrong ||
      (out.wrong.size() == pair->reference.size() && !pair->of_summaries)) {
    return std::nullopt;
  }
  if (pair->of_summaries) {
    double error = 0;
    double square = 0;
    for (const size_t i : out.wrong) {
      const double d = pair->candidate[i] - pair->reference[i];
      error += d * d;
      square += pair->reference[i] * pair->reference[i];
    }
    if (AreDigests(evidence)) {
      out.apart = square > 0 ? std::sqrt(error / square) : 0;
    }
    out.sample = SampleWords(*pair);
  }
  out.boxes = std::move(pair->boxes);
  out.reference = std::move(pair->reference);
  return out;
}

// The sum of the copies over mesh dimensions, times `scale`, against the
// reference.
std::optional<ErrorStats> Summed(const Evidence& evidence, const Looked& looked,
                                 const std::vector<std::string>& over,
                                 double scale) {
  CompareOptions options = evidence.compare;
  options.sum_over = over;
  options.extra_scale = scale;
  if (looked.boxes.empty()) {
    const auto merged =
        CompareTensor(*evidence.reference, *evidence.candidate, options);
    if (!merged.ok()) return std::nullopt;
    return merged->total;
  }
  const auto merged = ReadKept(*evidence.candidate, looked.boxes, options);
  if (!merged.ok()) return std::nullopt;
  ErrorStats out;
  for (const size_t i : looked.wrong) {
    const double reference = looked.reference[i];
    const double error = (*merged)[i] - reference;
    out.sum_sq_err += error * error;
    out.sum_err_ref += error * reference;
    out.sum_sq_ref += reference * reference;
  }
  return out;
}

// The error of a sum that explains the copies; nothing if it does not.
//
// Terms that cancel leave more noise than their sum: twice the bound. One wrong
// copy among right ones leaves its share in their mean: that is no term of a
// sum.
std::optional<double> ErrorOfSum(const Evidence& evidence, const Looked& looked,
                                 const std::vector<std::string>& over,
                                 int copies, double divisor) {
  const auto merged = Summed(evidence, looked, over, 1 / divisor);
  if (!merged) return std::nullopt;
  const double err = merged->rel_err();
  if (!(err <= 2 * evidence.leg->bound) || !(2 * copies * err < looked.apart)) {
    return std::nullopt;
  }
  return err;
}

// A reduction that is left out may take a division with it: the sum is a
// product of sizes of the run times the reference.
struct NamedFactor {
  double value = 1;
  std::string words;
};
std::optional<NamedFactor> FactorOfSum(const Evidence& evidence,
                                       const Looked& looked,
                                       const std::vector<std::string>& over) {
  const auto merged = Summed(evidence, looked, over, 1);
  if (!merged) return std::nullopt;
  NamedFactor out{merged->projection(), ""};
  if (!(out.value > 0)) return std::nullopt;
  out.words = FactorNameWords(evidence, out.value, evidence.leg->bound);
  if (out.words.empty()) return std::nullopt;
  return out;
}

struct ExplainedSum {
  std::string words;
  double err = 0;
};

std::optional<ExplainedSum> Explain(const Evidence& evidence,
                                    const Looked& looked) {
  for (const auto& over : Subsets(evidence.judgement->replicas.mesh_dims)) {
    int copies = 1;
    for (const std::string& name : over) copies *= SizeOf(evidence, name);
    if (copies < 2) continue;
    for (int divisor = 1; divisor <= copies; ++divisor) {
      if (copies % divisor != 0) continue;
      const auto err = ErrorOfSum(evidence, looked, over, copies, divisor);
      if (err) return ExplainedSum{SumWords(copies, divisor, over), *err};
    }
    const auto factor = FactorOfSum(evidence, looked, over);
    if (!factor) continue;
    const auto err = ErrorOfSum(evidence, looked, over, copies, factor->value);
    if (!err) continue;
    return ExplainedSum{
        fmt::format("their sum is {:.5g} x the reference{}: a sum over {} and "
                    "a division are missing",
                    factor->value, factor->words, Join(over)),
        *err};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Diagnosis> SumOfCopies(const Evidence& evidence) {
  const ReplicaComparison& replicas = evidence.judgement->replicas;
  if (!evidence.judgement->replicas_differ) return std::nullopt;
  const bool digests = AreDigests(evidence);
  // Copies that differ by less than noise are no terms of a sum.
  if (!digests && !(replicas.worst_rel_err > evidence.leg->bound)) {
    return std::nullopt;
  }
  std::string where;
  std::string sample;
  std::optional<ExplainedSum> sum;
  if (!digests) {
    Looked whole;
    whole.apart = replicas.worst_rel_err;
    sum = Explain(evidence, whole);
  }
  if (!sum) {
    const auto wrong = WrongOnes(evidence);
    if (!wrong) return std::nullopt;
    sum = Explain(evidence, *wrong);
    if (!sum) return std::nullopt;
    where = fmt::format("where they are wrong ({} of {} elements looked at), ",
                        wrong->wrong.size(), wrong->reference.size());
    sample = wrong->sample;
  }
  return Diagnosis{BugClass::kMissingPartialSum,
                   fmt::format("copies on {} differ{} along {}, and {}{} "
                               "(rel_err {:.1e}, bound {:.1e}){}",
                               RankWords(replicas.differing_ranks),
                               digests ? ""
                                       : fmt::format(" by up to {:.2g}",
                                                     replicas.worst_rel_err),
                               Join(replicas.mesh_dims), where, sum->words,
                               sum->err, evidence.leg->bound, sample),
                   sum->err};
}

}  // namespace ttrace
