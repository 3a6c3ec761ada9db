#include "src/diagnose/rules/sum_of_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "src/base/rank_words.h"
#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

// All non-empty subsets, larger ones last: the simplest sum that explains the
// reference is the one that is missing.
std::vector<std::vector<std::string>> Subsets(
    const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> out;
  const size_t n = std::min<size_t>(names.size(), kMostMeshDims);
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

std::string MissingSumWords(int copies, int divisor,
                            const std::vector<std::string>& over) {
  if (divisor == 1) {
    return fmt::format(
        "their sum equals the reference: a sum over {} is "
        "missing",
        DimWords(over));
  }
  if (divisor == copies) {
    return fmt::format(
        "their mean equals the reference: a mean over {} is "
        "missing",
        DimWords(over));
  }
  return fmt::format(
      "their sum over {} divided by {} equals the reference: each was summed "
      "over {} of {} ranks only",
      DimWords(over), divisor, divisor, copies);
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
bool AreDigests(const ValueView& view) {
  return view.evidence().judgement->replicas.worst_rel_err == 0 &&
         !GivesValues(view.candidate());
}

// Nothing if too few elements are wrong to tell; or if all are, of a tensor
// that was asked about as a whole.
std::optional<Looked> WrongOnes(const ValueView& view) {
  const Suspect* suspect = view.suspect();
  if (suspect == nullptr) return std::nullopt;
  const SampledPair& pair = suspect->pair;
  Looked out;
  out.apart = view.evidence().judgement->replicas.worst_rel_err;
  out.wrong = WrongElements(pair, view.bound());
  if (out.wrong.size() < kFewestFitted ||
      (out.wrong.size() == pair.reference.size() && !pair.of_summaries)) {
    return std::nullopt;
  }
  if (pair.of_summaries) {
    double error = 0;
    double square = 0;
    for (const size_t i : out.wrong) {
      const double d = pair.candidate[i] - pair.reference[i];
      error += d * d;
      square += pair.reference[i] * pair.reference[i];
    }
    if (AreDigests(view)) {
      out.apart = square > 0 ? std::sqrt(error / square) : 0;
    }
    out.sample = SampleWords(pair);
  }
  out.boxes = pair.boxes;
  out.reference = pair.reference;
  return out;
}

// The sum of the copies over mesh dimensions, times `scale`, against the
// reference.
std::optional<ErrorStats> Summed(const ValueView& view, const Looked& looked,
                                 const std::vector<std::string>& over,
                                 double scale) {
  CompareOptions options = view.evidence().compare;
  options.sum_over = over;
  options.extra_scale = scale;
  if (looked.boxes.empty()) {
    const auto merged =
        CompareTensor(view.reference(), view.candidate(), options);
    if (!merged.ok()) return std::nullopt;
    return merged->total;
  }
  const auto merged = ReadKept(view.candidate(), looked.boxes, options);
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
std::optional<double> ErrorOfSum(const ValueView& view, const Looked& looked,
                                 const std::vector<std::string>& over,
                                 int copies, double divisor) {
  const auto merged = Summed(view, looked, over, 1 / divisor);
  // An error leaves out what is not finite.
  if (!merged || merged->nonfinite_differ > 0) return std::nullopt;
  const double err = merged->rel_err();
  if (!(err <= 2 * view.bound()) || !(2 * copies * err < looked.apart)) {
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
std::optional<NamedFactor> FactorOfSum(const ValueView& view,
                                       const Looked& looked,
                                       const std::vector<std::string>& over) {
  const auto merged = Summed(view, looked, over, 1);
  if (!merged) return std::nullopt;
  NamedFactor out{merged->projection(), ""};
  if (!(out.value > 0)) return std::nullopt;
  out.words = FactorNameWords(view.evidence(), out.value, view.bound());
  if (out.words.empty()) return std::nullopt;
  return out;
}

struct ExplainedSum {
  std::string words;
  double err = 0;
};

std::optional<ExplainedSum> ExplainSum(const ValueView& view,
                                       const Looked& looked) {
  for (const auto& over :
       Subsets(view.evidence().judgement->replicas.mesh_dims)) {
    int copies = 1;
    for (const std::string& name : over) copies *= view.evidence().SizeOf(name);
    if (copies < 2) continue;
    for (int divisor = 1; divisor <= copies; ++divisor) {
      if (copies % divisor != 0) continue;
      const auto err = ErrorOfSum(view, looked, over, copies, divisor);
      if (err)
        return ExplainedSum{MissingSumWords(copies, divisor, over), *err};
    }
    const auto factor = FactorOfSum(view, looked, over);
    if (!factor) continue;
    const auto err = ErrorOfSum(view, looked, over, copies, factor->value);
    if (!err) continue;
    return ExplainedSum{
        fmt::format("their sum is {:.5g} x the reference{}: a sum over {} and "
                    "a division are missing",
                    factor->value, factor->words, DimWords(over)),
        *err};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Diagnosis> SumOfCopies(const ValueView& view) {
  const ReplicaComparison& replicas = view.evidence().judgement->replicas;
  if (!view.evidence().judgement->replicas_differ) return std::nullopt;
  const bool digests = AreDigests(view);
  // Copies that differ by less than noise are no terms of a sum.
  if (!digests && !(replicas.worst_rel_err > view.bound())) {
    return std::nullopt;
  }
  std::string where;
  std::string sample;
  std::optional<ExplainedSum> sum;
  if (!digests) {
    Looked whole;
    whole.apart = replicas.worst_rel_err;
    sum = ExplainSum(view, whole);
  }
  if (!sum) {
    const auto wrong = WrongOnes(view);
    if (!wrong) return std::nullopt;
    sum = ExplainSum(view, *wrong);
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
                               DimWords(replicas.mesh_dims), where, sum->words,
                               sum->err, view.bound(), sample),
                   sum->err};
}

}  // namespace ttrace
