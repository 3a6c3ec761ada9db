#include "src/trace/note_json.h"

#include <algorithm>
#include <span>

namespace ttrace {
namespace {

std::string TextOf(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : JsonText(value);
}

}  // namespace

nlohmann::json ParseJson(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}

std::string JsonText(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<int> IterationAt(const nlohmann::json& note) {
  if (!note.is_object()) return std::nullopt;
  const auto it = note.find("iteration");
  if (it == note.end() || !it->is_number_integer()) return std::nullopt;
  return it->get<int>();
}

std::string TextAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? "" : TextOf(*it);
}

int64_t CountAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

double NumberAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : 0;
}

bool TrueAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_boolean() && it->get<bool>();
}

std::vector<std::string> TextsAt(const nlohmann::json& object,
                                 const char* key) {
  std::vector<std::string> out;
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return out;
  for (const auto& item : *it) out.push_back(TextOf(item));
  return out;
}

int64_t ForEachNoteIf(const NoteList& notes,
                      const std::function<bool(const std::string&)>& wanted,
                      const ReadNote& read) {
  int64_t malformed = 0;
  for (const std::span<const Note> part : notes.parts()) {
    for (const Note& note : part) {
      if (!wanted(note.kind)) continue;
      const auto json = ParseJson(note.json);
      if (json.is_object()) {
        read(ParsedNote{note.rank, note.kind, json});
      } else {
        ++malformed;
      }
    }
  }
  return malformed;
}

int64_t ForEachNote(const NoteList& notes,
                    std::initializer_list<std::string_view> kinds,
                    const ReadNote& read) {
  return ForEachNoteIf(
      notes,
      [&](const std::string& kind) {
        return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
      },
      read);
}

}  // namespace ttrace
