// Reads the fields of a JSON object, with their types checked.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_REPORT_JSON_READER_H_
#define TTRACE_SRC_REPORT_JSON_READER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/report/json_numbers.h"

namespace ttrace {

using ReadJson = nlohmann::json;

// Each is false if `value` is of another type.
inline bool TakeJson(const ReadJson& value, std::string* out) {
  if (!value.is_string()) return false;
  *out = value.get<std::string>();
  return true;
}

// Integers that every reader of JSON keeps. No count of ours comes near, and a
// thousand of them can be added.
inline constexpr int64_t kLargestInteger = int64_t{1} << 53;

inline bool TakeJson(const ReadJson& value, int64_t* out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(kLargestInteger)) {
    return false;
  }
  *out = value.get<int64_t>();
  return *out >= -kLargestInteger && *out <= kLargestInteger;
}

inline bool TakeJson(const ReadJson& value, bool* out) {
  if (!value.is_boolean()) return false;
  *out = value.get<bool>();
  return true;
}

// What JSON cannot spell is text.
inline bool TakeJson(const ReadJson& value, double* out) {
  if (value.is_number()) {
    *out = value.get<double>();
    return true;
  }
  if (!value.is_string()) return false;
  const auto spelled = ReadSpelledNumber(value.get<std::string>());
  if (spelled) *out = *spelled;
  return spelled.has_value();
}

template <typename T>
bool TakeJson(const ReadJson& value, std::vector<T>* out) {
  if (!value.is_array()) return false;
  out->reserve(value.size());
  for (const ReadJson& item : value) {
    if (!TakeJson(item, &out->emplace_back())) return false;
  }
  return true;
}

// Reads the fields of one object after another. The first that is of another
// type than is asked for is remembered, and all that follow are left out.
class ObjectReader {
 public:
  // REQUIRES: outlived by `json`.
  explicit ObjectReader(const ReadJson& json) : json_(json) {
    if (!json.is_object()) problem_ = "an object is expected";
  }

  template <typename T>
  void Read(const char* key, T* out) {
    const ReadJson* value = Find(key);
    if (value != nullptr && !TakeJson(*value, out)) {
      problem_ = "'" + std::string(key) + "' is of another type, or too large";
    }
  }
  // `read` is given the fields of the object at `key`.
  template <typename ReadFields>
  void Object(const char* key, ReadFields read) {
    const ReadJson* value = Find(key);
    if (value == nullptr) return;
    ObjectReader object(*value);
    read(object);
    AddProblem(key, object);
  }
  // The same, of what may not be there.
  template <typename T, typename ReadFields>
  void Object(const char* key, std::optional<T>* out, ReadFields read) {
    Object(key, [&](ObjectReader& object) {
      *out = T{};
      read(object, &**out);
    });
  }
  // The same of each object of a list.
  template <typename T, typename ReadFields>
  void Objects(const char* key, std::vector<T>* out, ReadFields read) {
    const ReadJson* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_array()) {
      problem_ = "'" + std::string(key) + "' is no list";
      return;
    }
    out->reserve(value->size());
    for (const ReadJson& item : *value) {
      ObjectReader object(item);
      read(object, &out->emplace_back());
      AddProblem(key, object);
    }
  }

  // Names and values of the object at `key`, in the order of the names.
  template <typename T>
  void Members(const char* key, std::vector<std::pair<std::string, T>>* out) {
    Object(key, [&](ObjectReader& object) {
      for (const auto& [name, value] : object.json_.items()) {
        object.Read(name.c_str(), &out->emplace_back(name, T{}).second);
      }
    });
  }

  const std::string& problem() const { return problem_; }

 private:
  // Null if it is not there, and if something was wrong before.
  const ReadJson* Find(const char* key) const {
    if (!problem_.empty()) return nullptr;
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  void AddProblem(const char* key, const ObjectReader& inner) {
    if (problem_.empty() && !inner.problem_.empty()) {
      problem_ = "in '" + std::string(key) + "': " + inner.problem_;
    }
  }

  const ReadJson& json_;
  std::string problem_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_JSON_READER_H_
