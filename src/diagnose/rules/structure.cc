// Z and W from structure: modules that only one side has, and layers that the
// code under test numbers or configures otherwise than their place says.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/rank_words.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

// Whether a module trains or evaluates: a matter of both sides; see OtherMode.
constexpr std::string_view kTraining = "training";

}  // namespace

std::optional<Diagnosis> WrongModuleAttribute(const Evidence& evidence) {
  // Those of parameters say how gradients are reduced, and are quoted in K, P
  // and R; whether a module trains is another rule's.
  static constexpr std::string_view kOfOthers[] = {
      "gradient_scaling_factor", "sequence_parallel", "tensor_model_parallel",
      "shared_embedding", kTraining};
  const std::string& fqn = evidence.culprit->fqn;
  const Attribute* found = nullptr;
  for (const Attribute& note : evidence.attributes) {
    const bool own = fqn == note.fqn || fqn.starts_with(note.fqn + ".");
    if (note.fqn.empty() || !own ||
        std::find(std::begin(kOfOthers), std::end(kOfOthers), note.name) !=
            std::end(kOfOthers)) {
      continue;
    }
    // The innermost module that has one.
    if (found == nullptr || note.fqn.size() > found->fqn.size()) found = &note;
  }
  if (found == nullptr) return std::nullopt;
  std::set<int> ranks;
  for (const Attribute& note : evidence.attributes) {
    if (note.fqn == found->fqn && note.name == found->name) {
      ranks.insert(note.ranks.begin(), note.ranks.end());
    }
  }
  return Diagnosis{
      BugClass::kWrongSlice,
      fmt::format("{} of {} is {} where its place in the model says {} ({}): "
                  "it computes as another layer does",
                  found->name, found->fqn, found->value, found->expected,
                  RankWords({ranks.begin(), ranks.end()})),
      static_cast<double>(ranks.size())};
}

std::optional<Diagnosis> OtherMode(const Evidence& evidence) {
  const std::string& fqn = evidence.culprit->fqn;
  const auto evaluates = [&](const std::vector<Attribute>& attributes) {
    return std::any_of(attributes.begin(), attributes.end(),
                       [&](const Attribute& note) {
                         return note.name == kTraining && note.fqn == fqn &&
                                note.value == "False";
                       });
  };
  const bool candidate = evaluates(evidence.attributes);
  if (candidate == evaluates(evidence.reference_attributes)) {
    return std::nullopt;
  }
  return Diagnosis{
      BugClass::kOtherHyperparameters,
      fmt::format("{} is in evaluation mode (`eval()`) in the {} and in "
                  "training mode in the {}",
                  fqn, candidate ? "candidate" : "reference",
                  candidate ? "reference" : "candidate")};
}

std::optional<Diagnosis> OtherStructure(const Evidence& evidence) {
  std::set<std::string> reference_only;
  std::set<std::string> candidate_only;
  for (const TensorJudgement* t : evidence.unmatched) {
    if (t->id.iteration != evidence.culprit->iteration ||
        (t->id.role != Role::kOutput && t->id.role != Role::kParam)) {
      continue;
    }
    if (evidence.find_candidate(t->id) == nullptr) {
      reference_only.insert(t->id.fqn);
    } else if (evidence.find_reference(t->id) == nullptr) {
      candidate_only.insert(t->id.fqn);
    }
  }
  if (reference_only.empty() && candidate_only.empty()) return std::nullopt;
  std::vector<std::string> words;
  for (const auto& [names, side] :
       {std::pair{&reference_only, "the reference"},
        std::pair{&candidate_only, "the candidate"}}) {
    if (names->empty()) continue;
    words.push_back(fmt::format(
        "{} module{} or parameter{} only in {} ({}{})", names->size(),
        names->size() == 1 ? "" : "s", names->size() == 1 ? "" : "s", side,
        names->begin()->empty() ? "the model itself" : *names->begin(),
        names->size() == 1 ? "" : ", ..."));
  }
  return Diagnosis{
      BugClass::kOtherModelOrInputs,
      fmt::format("the models differ: {}", fmt::join(words, ", ")),
      static_cast<double>(reference_only.size() + candidate_only.size())};
}

}  // namespace ttrace
