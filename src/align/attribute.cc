#include "src/align/attribute.h"

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

// Python's words for the two truth values: the attribute is Python's.
std::string Text(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end()) return "";
  if (it->is_boolean()) return it->get<bool>() ? "True" : "False";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

}  // namespace

std::vector<Attribute> ReadAttributes(const NoteList& notes) {
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<Key, Attribute> found;
  ForEachNote(notes, {"attribute"}, [&](const ParsedNote& note) {
    const Json& json = note.json;
    Attribute a{Text(json, "fqn"),
                Text(json, "name"),
                Text(json, "value"),
                Text(json, "expected"),
                Text(json, "of") == "bucket",
                {}};
    if (a.name.empty()) return;
    const Key key(a.name, a.fqn, a.value, a.expected);
    found.emplace(key, a).first->second.ranks.insert(note.rank);
  });
  std::vector<Attribute> out;
  out.reserve(found.size());
  for (const auto& [key, attribute] : found) out.push_back(attribute);
  return out;
}

}  // namespace ttrace
