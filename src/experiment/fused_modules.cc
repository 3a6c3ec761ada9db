#include "src/experiment/fused_modules.h"

#include <nlohmann/json.hpp>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

void Read(const Json& json, FusedModules* out) {
  const std::string fqn = TextAt(json, "fqn");
  const std::string within = TextAt(json, "within");
  if (fqn.empty() || within.empty()) return;
  out->within.emplace(fqn, within);
  if (const auto names = json.find("names");
      names != json.end() && names->is_object()) {
    for (const auto& [recorded, here] : names->items()) {
      if (here.is_string()) {
        out->names.emplace(recorded, here.get<std::string>());
      }
    }
  }
  const auto absent = json.find("absent");
  if (absent == json.end() || !absent->is_object()) return;
  for (const auto& [module, roles] : absent->items()) {
    if (!roles.is_array()) continue;
    for (const Json& word : roles) {
      const auto role =
          word.is_string() ? ParseRole(word.get<std::string>()) : std::nullopt;
      if (role) {
        out->absent.insert(
            {{module, *role}, "part of " + TextAt(json, "class")});
      }
    }
  }
}

}  // namespace

FusedModules ReadFusedModules(const Trace& trace) {
  FusedModules out;
  ForEachNote(trace, {"fused"},
              [&](const ParsedNote& note) { Read(note.json, &out); });
  return out;
}

}  // namespace ttrace
