#include "src/diagnose/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/base/rank_words.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/topology_factors.h"

namespace ttrace {
namespace {

std::vector<RunSize> SizesOf(const Evidence& evidence) {
  std::vector<RunSize> sizes;
  if (evidence.candidate != nullptr && evidence.candidate_mesh != nullptr) {
    const auto& reduced = evidence.candidate->pieces.front().reduced_over();
    for (const MeshDim& dim : evidence.candidate_mesh->dims) {
      const bool expected =
          std::find(reduced.begin(), reduced.end(), dim.name) != reduced.end();
      sizes.push_back({dim.name, static_cast<double>(dim.size), expected});
    }
  }
  sizes.push_back(
      {"micro-batches", static_cast<double>(evidence.micro_batches), false});
  sizes.push_back({"rows of the global batch",
                   static_cast<double>(evidence.global_batch), false});
  sizes.push_back({"sequence length",
                   static_cast<double>(evidence.sequence_length), false});
  return sizes;
}

}  // namespace

std::string AttributeWords(const Evidence& evidence, const std::string& name) {
  const Attribute* first = nullptr;
  std::set<int> ranks;
  std::set<std::string> names;
  for (const Attribute& note : evidence.attributes) {
    const bool concerns =
        note.fqn == evidence.culprit->fqn ||
        std::any_of(evidence.affected.begin(), evidence.affected.end(),
                    [&](const auto* t) { return t->id.fqn == note.fqn; });
    if (note.name != name || !concerns) continue;
    if (first == nullptr) first = &note;
    ranks.insert(note.ranks.begin(), note.ranks.end());
    names.insert(note.fqn);
  }
  if (first == nullptr) return "";
  return fmt::format(
      "; attribute {} of {}{} is {} where the topology says {} ({})", name,
      first->fqn,
      names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "",
      first->value, first->expected, RankWords({ranks.begin(), ranks.end()}));
}

std::string DimWords(const std::vector<std::string>& dims) {
  return fmt::format("{}", fmt::join(dims, " x "));
}

std::string SampleWords(const SampledPair& pair) {
  return pair.of_summaries ? SampleWords(pair.boxes.size()) : "";
}

std::string SampleWords(size_t elements) {
  return fmt::format("; seen in the sample of {} elements that was kept",
                     elements);
}

std::string FactorNameWords(const Evidence& evidence, double factor,
                            double tolerance) {
  const std::vector<std::string> names = NamesOfFactor(
      std::fabs(factor), SizesOf(evidence),
      std::fmin(kNamedWithin, std::fmax(kStatisticsResolve, tolerance)));
  std::string out;
  for (size_t i = 0; i < names.size() && i < kNamesOfFactor; ++i) {
    out += i == 0 ? ", and the factor equals " + names[i]
                  : " (or " + names[i] + ")";
  }
  return out;
}

}  // namespace ttrace
