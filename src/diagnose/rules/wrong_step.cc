// A step that is not what its settings make of what its rank recorded.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "src/base/rank_words.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/step_hypotheses.h"

namespace ttrace {
namespace {

std::set<int> WrongRanks(const ReplayedStep& step) {
  std::set<int> out;
  for (const StepErrors& errors : step.errors) {
    out.insert(errors.ranks.begin(), errors.ranks.end());
  }
  return out;
}

// "on all 2 ranks", "on rank 1, while rank 0 steps right"
std::string WhichRanks(const ReplayedStep& step) {
  const std::set<int> wrong = WrongRanks(step);
  std::vector<int> right;
  std::set_difference(step.ranks.begin(), step.ranks.end(), wrong.begin(),
                      wrong.end(), std::back_inserter(right));
  const std::string on = RankWords({wrong.begin(), wrong.end()});
  if (right.empty()) {
    return wrong.size() == 1
               ? "on " + on
               : fmt::format("on all {} ranks that have it", wrong.size());
  }
  return fmt::format("on {}, while {} step{} right", on, RankWords(right),
                     right.size() == 1 ? "s" : "");
}

std::string NameOf(StepQuantity quantity) {
  switch (quantity) {
    case StepQuantity::kStepCount:
      return "the count of steps";
    case StepQuantity::kParameter:
      return "the parameter";
    case StepQuantity::kCopy:
      return "the working copy";
    default:
      return NameOf(ResultOf(quantity));
  }
}

}  // namespace

std::string StepHint(const ReplayedStep& step) {
  std::vector<std::string> wrong;
  std::vector<std::string> right;
  for (size_t q = 0; q < kStepQuantities; ++q) {
    const auto quantity = static_cast<StepQuantity>(q);
    const StepErrors& errors = step.Of(quantity);
    if (errors.judged == 0) continue;
    if (errors.out == 0) {
      right.push_back(NameOf(quantity));
    } else {
      wrong.push_back(fmt::format("{} ({} of {} elements)", NameOf(quantity),
                                  errors.out, errors.judged));
    }
  }
  std::string out = fmt::format(
      "made again from what went in, {} {} wrong {}", fmt::join(wrong, ", "),
      wrong.size() == 1 ? "is" : "are", WhichRanks(step));
  if (!right.empty()) out += fmt::format("; right: {}", fmt::join(right, ", "));
  if (step.skipped) {
    out +=
        "; by a note the step was skipped, or there was no gradient, and "
        "nothing may change";
  }
  return out;
}

std::optional<Diagnosis> WrongStep(const Evidence& evidence) {
  if (evidence.step == nullptr || !evidence.step->out()) return std::nullopt;
  const ReplayedStep& step = *evidence.step;
  const StepErrors& count = step.Of(StepQuantity::kStepCount);
  const bool miscounted = count.out > 0 && !step.skipped;
  std::optional<StepExplanation> found;
  if (step.sample) {
    found = ExplainStep(*step.sample, evidence.weight_decays);
  }
  // What is computed with the right count is no further fault.
  if (found && !(miscounted && found->of_count)) {
    return Diagnosis{
        found->bug_class,
        fmt::format("{}: explains all {} wrong elements looked at, {}",
                    found->words, found->wrong, WhichRanks(step)),
        found->value};
  }
  if (!miscounted || (step.sample && !found)) return std::nullopt;
  return Diagnosis{BugClass::kStaleValue,
                   fmt::format("its count of steps is off by {}, {}",
                               count.error, WhichRanks(step)),
                   count.error};
}

}  // namespace ttrace
