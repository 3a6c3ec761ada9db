// Reading notes, which anybody may have written: what is no object is left out,
// and what is not there in one, or of another type, is empty. Parser and writer
// are used here, not where the templates are: each file with them of its own
// takes a second more to compile.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_TRACE_NOTE_JSON_H_
#define TTRACE_SRC_TRACE_NOTE_JSON_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/trace/note_list.h"
#include "src/trace/reader.h"

namespace ttrace {

// What a text says; `is_discarded()` if it is no JSON.
nlohmann::json ParseJson(std::string_view text);

// The text of a value, in one line. Strings that are no UTF-8 are mended.
std::string JsonText(const nlohmann::json& value);

// Which iteration a note is of; nothing if it is no object or does not say.
std::optional<int> IterationAt(const nlohmann::json& note);

std::string TextAt(const nlohmann::json& object, const char* key);

int64_t CountAt(const nlohmann::json& object, const char* key);

double NumberAt(const nlohmann::json& object, const char* key);

bool TrueAt(const nlohmann::json& object, const char* key);

std::vector<std::string> TextsAt(const nlohmann::json& object, const char* key);

struct ParsedNote {
  int rank = 0;
  const std::string& kind;
  const nlohmann::json& json;  // an object

  std::optional<int> iteration() const { return IterationAt(json); }
};

using ReadNote = std::function<void(const ParsedNote&)>;

// Calls `read` with each note of which `wanted` takes the kind. Returns how
// many of these are no JSON objects.
int64_t ForEachNoteIf(const NoteList& notes,
                      const std::function<bool(const std::string&)>& wanted,
                      const ReadNote& read);

// The same of some kinds.
int64_t ForEachNote(const NoteList& notes,
                    std::initializer_list<std::string_view> kinds,
                    const ReadNote& read);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_NOTE_JSON_H_
