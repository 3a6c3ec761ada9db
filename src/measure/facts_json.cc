#include "src/measure/facts_json.h"

#include <cmath>
#include <concepts>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/measure/fields.h"
#include "src/measure/sound_facts.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

class Encoder {
 public:
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
    } else if constexpr (IsVector<T>::value) {
      Json out = Json::array();
      for (auto& element : value) out.push_back(Encode(element));
      return out;
    } else if constexpr (IsOptional<T>::value) {
      return value ? Encode(*value) : Json();
    } else if constexpr (std::is_class_v<T> &&
                         !std::is_same_v<T, std::string>) {
      Encoder encoder;
      VisitFields(encoder, value);
      return std::move(encoder.out_);
    } else {
      return value;
    }
  }
  template <typename T>
  void operator()(const char* key, T& value) {
    out_[key] = Encode(value);
  }

 private:
  Json out_ = Json::object();
};

// Keeps the first field that is not what it must be.
class Decoder {
 public:
  Decoder(const Json& object, std::string* bad) : object_(object), bad_(bad) {}

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
    } else if constexpr (std::is_enum_v<T>) {
      return json.is_string() && DecodeWord(json.get<std::string>(), value);
    } else if constexpr (IsVector<T>::value) {
      if (!json.is_array()) return false;
      value->resize(json.size());
      for (size_t i = 0; i < json.size(); ++i) {
        if (!Decode(json[i], &(*value)[i])) return false;
      }
      return true;
    } else if constexpr (IsOptional<T>::value) {
      value->reset();
      return json.is_null() || Decode(json, &value->emplace());
    } else {
      Decoder inner(json, bad_);
      VisitFields(inner, *value);
      return bad_->empty();
    }
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

}  // namespace

std::string EncodeFacts(const TensorFacts& facts) {
  TensorFacts copy = facts;  // VisitFields serves the decoder, too
  return Encoder::Encode(copy).dump(-1, ' ', true,
                                    Json::error_handler_t::replace);
}

Result<TensorFacts> DecodeFacts(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) {
    return Error(ErrorCode::kCorrupt, "facts: no JSON object");
  }
  // Not on the stack: GCC 12 sees uninitialised members there.
  const auto facts = std::make_unique<TensorFacts>();
  std::string bad;
  Decoder decoder(json, &bad);
  VisitFields(decoder, *facts);
  if (!bad.empty()) {
    return Error(ErrorCode::kCorrupt, "facts: bad or missing field " + bad);
  }
  if (!IsSound(*facts)) {
    return Error(ErrorCode::kCorrupt, "facts: a region outside its tensor");
  }
  return std::move(*facts);
}

}  // namespace ttrace
