// Z and W from structure: modules that only one side has, and layers that the
// code under test numbers otherwise than their place says.

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "src/diagnose/diagnose.h"
#include "src/diagnose/words.h"

namespace ttrace {

std::optional<Diagnosis> WrongLayerNumber(const Evidence& evidence) {
  const std::string& fqn = evidence.culprit->fqn;
  const ObservedAttribute* found = nullptr;
  std::set<int> ranks;
  for (const ObservedAttribute& note : evidence.attributes) {
    if (note.name != "layer_number" || note.fqn.empty() ||
        !(fqn == note.fqn || fqn.starts_with(note.fqn + ".") ||
          note.fqn.starts_with(fqn + "."))) {
      continue;
    }
    if (found == nullptr) found = &note;
    ranks.insert(note.rank);
  }
  if (found == nullptr || fqn.empty()) return std::nullopt;
  return Diagnosis{
      "W",
      fmt::format("{} has layer_number {} where its place in the model says {} "
                  "({}): it computes as another layer does",
                  found->fqn, found->value, found->expected,
                  RankWords({ranks.begin(), ranks.end()})),
      static_cast<double>(ranks.size())};
}

std::optional<Diagnosis> OtherStructure(const Evidence& evidence) {
  std::set<std::string> reference_only;
  std::set<std::string> candidate_only;
  for (const TensorJudgement* t : evidence.unmatched) {
    if (t->id.iteration != evidence.culprit->iteration ||
        (t->id.role != Role::kOutput && t->id.role != Role::kParam)) {
      continue;
    }
    (evidence.find_candidate(t->id) == nullptr ? reference_only
                                               : candidate_only)
        .insert(t->id.fqn);
  }
  if (reference_only.empty() && candidate_only.empty()) return std::nullopt;
  std::vector<std::string> words;
  for (const auto& [names, side] :
       {std::pair{&reference_only, "the reference"},
        std::pair{&candidate_only, "the candidate"}}) {
    if (names->empty()) continue;
    words.push_back(fmt::format("{} module{} or parameter{} only in {} ({}{})",
                                names->size(), names->size() == 1 ? "" : "s",
                                names->size() == 1 ? "" : "s", side,
                                *names->begin(),
                                names->size() == 1 ? "" : ", ..."));
  }
  return Diagnosis{
      "Z", fmt::format("the models differ: {}", fmt::join(words, ", ")),
      static_cast<double>(reference_only.size() + candidate_only.size())};
}

}  // namespace ttrace
