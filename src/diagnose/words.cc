#include "src/diagnose/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace ttrace {
namespace {

std::string Listed(const char* one, const char* many,
                   const std::vector<int>& numbers) {
  constexpr size_t kShown = 8;
  std::string out = numbers.size() == 1 ? one : many;
  for (size_t i = 0; i < numbers.size() && i < kShown; ++i) {
    out += (i == 0 ? " " : ", ") + std::to_string(numbers[i]);
  }
  if (numbers.size() > kShown) out += ", ...";
  return out;
}

}  // namespace

std::string RankWords(const std::vector<int>& ranks) {
  return Listed("rank", "ranks", ranks);
}

std::string MicroBatchWords(const std::vector<int>& micro_batches) {
  return Listed("micro-batch", "micro-batches", micro_batches);
}

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

}  // namespace ttrace
