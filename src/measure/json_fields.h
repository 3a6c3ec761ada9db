// What a type's fields are (VisitFields) as a JSON object, and back, exactly:
// doubles come back bit for bit, NaN and infinities included.
//
// Unknown keys are ignored; of missing and bad ones the first is named.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_MEASURE_JSON_FIELDS_H_
#define TTRACE_SRC_MEASURE_JSON_FIELDS_H_

#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/measure/fields.h"

namespace ttrace {

// A sequence of values of one type.
template <typename T>
struct IsSequence : std::false_type {};
template <typename T>
struct IsSequence<std::vector<T>> : std::true_type {};
template <typename T>
struct IsSequence<std::set<T>> : std::true_type {};
template <typename T, size_t N>
struct IsSequence<std::array<T, N>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

class JsonEncoder {
  using Json = nlohmann::json;

 public:
  template <typename T>
  static std::string Line(const T& value) {
    T copy = value;  // VisitFields serves the decoder, too
    return Encode(copy).dump(-1, ' ', true, Json::error_handler_t::replace);
  }
  template <typename T>
  void operator()(const char* key, T& value) {
    out_[key] = Encode(value);
  }

 private:
  template <typename T>
  static Json Encode(T& value) {
    if constexpr (std::is_same_v<T, double>) {
      // JSON has no spelling for these.
      if (std::isnan(value)) return "NaN";
      if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
      return value;
    } else if constexpr (std::is_same_v<T, Role> || std::is_same_v<T, Pass> ||
                         std::is_same_v<T, Fidelity>) {
      return ToString(value);
    } else if constexpr (std::is_same_v<T, DType>) {
      return Info(value).torch_name;
    } else if constexpr (IsSequence<T>::value) {
      Json out = Json::array();
      // Elements of a set are const; nothing is changed here.
      for (auto& element : value) {
        using Element = typename T::value_type;
        out.push_back(Encode(const_cast<Element&>(element)));
      }
      return out;
    } else if constexpr (std::is_enum_v<T>) {
      return static_cast<int>(value);
    } else if constexpr (IsOptional<T>::value) {
      return value ? Encode(*value) : Json();
    } else if constexpr (std::is_class_v<T> &&
                         !std::is_same_v<T, std::string>) {
      JsonEncoder encoder;
      VisitFields(encoder, value);
      return std::move(encoder.out_);
    } else {
      return value;
    }
  }
  Json out_ = Json::object();
};

// Keeps the first field that is not what it must be.
class JsonDecoder {
  using Json = nlohmann::json;

 public:
  JsonDecoder(const Json& object, std::string* bad)
      : object_(object), bad_(bad) {}

  template <typename T>
  void operator()(const char* key, T& value) {
    if (!bad_->empty()) return;
    const auto found = object_.is_object() ? object_.find(key) : object_.end();
    if (found == object_.end() || !Decode(*found, &value)) {
      if (bad_->empty()) *bad_ = key;
    }
  }

 private:
  template <typename T>
  bool Decode(const Json& json, T* value) {
    if constexpr (std::is_same_v<T, double>) {
      return DecodeNumber(json, value);
    } else if constexpr (std::is_same_v<T, bool>) {
      return json.is_boolean() && (json.get_to(*value), true);
    } else if constexpr (std::integral<T>) {
      if (!json.is_number_integer()) return false;
      const auto wide = json.get<int64_t>();
      *value = static_cast<T>(wide);
      return std::in_range<T>(wide);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return json.is_string() && (json.get_to(*value), true);
    } else if constexpr (std::is_same_v<T, Role> || std::is_same_v<T, Pass> ||
                         std::is_same_v<T, Fidelity> ||
                         std::is_same_v<T, DType>) {
      return json.is_string() && DecodeWord(json.get<std::string>(), value);
    } else if constexpr (std::is_enum_v<T>) {
      int number = 0;
      if (!Decode(json, &number) || number < 0 || number >= CountOf(T{})) {
        return false;
      }
      *value = static_cast<T>(number);
      return true;
    } else if constexpr (IsSequence<T>::value) {
      return json.is_array() && DecodeSequence(json, value);
    } else if constexpr (IsOptional<T>::value) {
      value->reset();
      return json.is_null() || Decode(json, &value->emplace());
    } else {
      JsonDecoder inner(json, bad_);
      VisitFields(inner, *value);
      return bad_->empty();
    }
  }

  template <typename T>
  bool DecodeSequence(const Json& json, std::vector<T>* values) {
    values->clear();
    for (const Json& one : json) {
      T value = {};
      if (!Decode(one, &value)) return false;
      values->push_back(std::move(value));
    }
    return true;
  }
  template <typename T>
  bool DecodeSequence(const Json& json, std::set<T>* values) {
    std::vector<T> all;
    if (!DecodeSequence(json, &all)) return false;
    values->insert(all.begin(), all.end());
    return values->size() == all.size();
  }
  template <typename T, size_t N>
  bool DecodeSequence(const Json& json, std::array<T, N>* values) {
    if (json.size() != N) return false;
    for (size_t i = 0; i < N; ++i) {
      if (!Decode(json[i], &(*values)[i])) return false;
    }
    return true;
  }

  static bool DecodeNumber(const Json& json, double* value) {
    if (json.is_number()) {
      *value = json.get<double>();
      return true;
    }
    const double infinity = std::numeric_limits<double>::infinity();
    if (json == "NaN") {
      *value = std::numeric_limits<double>::quiet_NaN();
    } else if (json == "Infinity" || json == "-Infinity") {
      *value = json == "Infinity" ? infinity : -infinity;
    } else {
      return false;
    }
    return true;
  }
  static bool DecodeWord(const std::string& word, Fidelity* fidelity) {
    return Take(ParseFidelity(word), fidelity);
  }
  static bool DecodeWord(const std::string& word, Role* role) {
    return Take(ParseRole(word), role);
  }
  static bool DecodeWord(const std::string& word, Pass* pass) {
    return Take(ParsePass(word), pass);
  }
  static bool DecodeWord(const std::string& word, DType* dtype) {
    return Take(ParseDType(word), dtype);
  }
  template <typename T>
  static bool Take(const std::optional<T>& found, T* value) {
    if (found) *value = *found;
    return found.has_value();
  }

  const Json& object_;
  std::string* bad_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_JSON_FIELDS_H_
