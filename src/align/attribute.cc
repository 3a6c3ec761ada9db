#include "src/align/attribute.h"

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

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

class AttributeReader {
 public:
  void Add(const Note& note) {
    if (note.kind != "attribute") return;
    const Json json = Json::parse(note.json, nullptr, false);
    if (!json.is_object()) return;
    Attribute a{Text(json, "fqn"),
                Text(json, "name"),
                Text(json, "value"),
                Text(json, "expected"),
                Text(json, "of") == "bucket",
                {}};
    if (a.name.empty()) return;
    const auto key = std::make_tuple(a.name, a.fqn, a.value, a.expected);
    found_.emplace(key, a).first->second.ranks.insert(note.rank);
  }

  std::vector<Attribute> Finish() const {
    std::vector<Attribute> out;
    out.reserve(found_.size());
    for (const auto& [key, attribute] : found_) out.push_back(attribute);
    return out;
  }

 private:
  std::map<std::tuple<std::string, std::string, std::string, std::string>,
           Attribute>
      found_;
};

}  // namespace

std::vector<Attribute> ReadAttributes(const Trace& trace) {
  AttributeReader reader;
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) reader.Add(note);
  }
  return reader.Finish();
}

std::vector<Attribute> ReadAttributes(const std::vector<Note>& notes) {
  AttributeReader reader;
  for (const Note& note : notes) reader.Add(note);
  return reader.Finish();
}

}  // namespace ttrace
