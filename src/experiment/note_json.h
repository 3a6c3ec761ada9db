// Reading the JSON of notes, which anybody may have written: what is not there
// or of another type is empty.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_NOTE_JSON_H_
#define TTRACE_SRC_EXPERIMENT_NOTE_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_NOTE_JSON_H_
