#include "src/step/hyperparameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

constexpr double kSameNumber = 1e-12;  // see the header

bool SameNumber(double a, double b) {
  return a == b ||
         std::abs(a - b) <= kSameNumber * std::max(std::abs(a), std::abs(b));
}

std::optional<Hyperparameter> ReadValue(const Json& json) {
  if (json.is_boolean()) {
    return Hyperparameter{{}, json.get<bool>() ? "True" : "False"};
  }
  if (json.is_number()) return Hyperparameter{{json.get<double>()}, ""};
  if (json.is_null()) return Hyperparameter{{}, "none"};
  if (json.is_string() && !json.get_ref<const std::string&>().empty()) {
    return Hyperparameter{{}, json.get<std::string>()};
  }
  if (!json.is_array() || json.empty()) return std::nullopt;
  Hyperparameter out;
  for (const Json& part : json) {
    if (!part.is_number()) return std::nullopt;
    out.numbers.push_back(part.get<double>());
  }
  return out;
}

bool AddGroup(const ParsedNote& note, Hyperparameters* out) {
  const std::optional<int> iteration = note.iteration();
  if (!iteration) return false;
  const Json& json = note.json;
  const auto values = json.find("values");
  const auto parameters = json.find("parameters");
  if (values == json.end() || !values->is_object() ||
      parameters == json.end() || !parameters->is_array()) {
    return false;
  }
  std::map<std::string, Hyperparameter> known;
  for (const auto& [name, value] : values->items()) {
    if (auto read = ReadValue(value)) known.emplace(name, *std::move(read));
  }
  const auto kind = json.find("kind");
  if (kind != json.end() && kind->is_string()) {
    known["kind"] = {{}, kind->get<std::string>()};
  }
  for (const Json& fqn : *parameters) {
    if (!fqn.is_string()) return false;
    auto& step = out->steps[{*iteration, fqn.get<std::string>()}];
    for (const auto& [name, value] : known) step[name][value].insert(note.rank);
  }
  return true;
}

}  // namespace

std::string Hyperparameter::Text() const {
  if (!word.empty()) return word;
  if (numbers.size() == 1) return fmt::format("{}", numbers.front());
  return fmt::format("({})", fmt::join(numbers, ", "));
}

bool SameHyperparameter(const Hyperparameter& a, const Hyperparameter& b) {
  return a.word == b.word && a.numbers.size() == b.numbers.size() &&
         std::equal(a.numbers.begin(), a.numbers.end(), b.numbers.begin(),
                    SameNumber);
}

Hyperparameters ReadHyperparameters(const NoteList& notes) {
  Hyperparameters out;
  out.malformed += ForEachNote(
      notes, {"optimizer_group"},
      [&](const ParsedNote& note) { out.malformed += !AddGroup(note, &out); });
  return out;
}

}  // namespace ttrace
