// Reading notes, which anybody may have written: what is no object is left out,
// and what is not there in one, or of another type, is empty.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_TRACE_NOTE_JSON_H_
#define TTRACE_SRC_TRACE_NOTE_JSON_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/trace/note_list.h"
#include "src/trace/reader.h"

namespace ttrace {

// Which iteration a note is of; nothing if it is no object or does not say.
inline std::optional<int> IterationAt(const nlohmann::json& note) {
  if (!note.is_object()) return std::nullopt;
  const auto it = note.find("iteration");
  if (it == note.end() || !it->is_number_integer()) return std::nullopt;
  return it->get<int>();
}

inline std::string TextAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return "";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

inline int64_t CountAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

inline double NumberAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : 0;
}

inline bool TrueAt(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_boolean() && it->get<bool>();
}

inline std::vector<std::string> TextsAt(const nlohmann::json& object,
                                        const char* key) {
  std::vector<std::string> out;
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return out;
  for (const auto& item : *it) {
    out.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  }
  return out;
}

struct ParsedNote {
  int rank = 0;
  const std::string& kind;
  const nlohmann::json& json;  // an object

  std::optional<int> iteration() const { return IterationAt(json); }
};

// Calls `read` with each note of which `wanted` takes the kind. Returns how
// many of these are no JSON objects.
template <typename Wanted, typename Read>
int64_t ForEachNoteIf(const NoteList& notes, const Wanted& wanted,
                      const Read& read) {
  int64_t malformed = 0;
  for (const std::span<const Note> part : notes.parts()) {
    for (const Note& note : part) {
      if (!wanted(note.kind)) continue;
      const auto json = nlohmann::json::parse(note.json, nullptr, false);
      if (json.is_object()) {
        read(ParsedNote{note.rank, note.kind, json});
      } else {
        ++malformed;
      }
    }
  }
  return malformed;
}

// The same of some kinds.
template <typename Read>
int64_t ForEachNote(const NoteList& notes,
                    std::initializer_list<std::string_view> kinds,
                    const Read& read) {
  return ForEachNoteIf(
      notes,
      [&](const std::string& kind) {
        return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
      },
      read);
}

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_NOTE_JSON_H_
