// Each type is described once, by Describe; the encoder and the decoder walk
// the same description, so that they cannot disagree.

#include "src/measure/facts_json.h"

#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using Json = nlohmann::json;

template <typename A>
void Describe(A& field, ErrorStats& s) {
  field("count", s.count);
  field("mismatched", s.mismatched);
  field("nonfinite_ref", s.nonfinite_ref);
  field("nonfinite_cand", s.nonfinite_cand);
  field("nonfinite_differ", s.nonfinite_differ);
  field("sum_sq_err", s.sum_sq_err);
  field("sum_err_ref", s.sum_err_ref);
  field("sum_sq_ref", s.sum_sq_ref);
  field("max_abs_err", s.max_abs_err);
  field("max_abs_ref", s.max_abs_ref);
  field("max_elem", s.max_elem);
  field("sum_sq_elem", s.sum_sq_elem);
  field("max_block_sq_err", s.max_block_sq_err);
}

template <typename A>
void Describe(A& field, Segment& s) {
  field("begin", s.begin);
  field("size", s.size);
}

template <typename A>
void Describe(A& field, DimLayout& d) {
  field("segments", d.segments);
  field("global_size", d.global_size);
}

template <typename A>
void Describe(A& field, Layout& l) {
  field("dims", l.dims);
}

template <typename A>
void Describe(A& field, InstanceStats& i) {
  field("ranks", i.ranks);
  field("micro_batch", i.micro_batch);
  field("stats", i.stats);
  field("region", i.region);
}

template <typename A>
void Describe(A& field, RoutedTokens& r) {
  field("reference", r.reference);
  field("candidate", r.candidate);
  field("only_reference", r.only_reference);
  field("only_candidate", r.only_candidate);
}

template <typename A>
void Describe(A& field, RoutingTrouble& t) {
  field("miscounted", t.miscounted);
  field("rank", t.rank);
  field("router", t.router);
  field("expert", t.expert);
  field("expected", t.expected);
  field("actual", t.actual);
  field("detail", t.detail);
}

template <typename A>
void Describe(A& field, FlippedToken& f) {
  field("token", f.token);
  field("margin", f.margin);
}

template <typename A>
void Describe(A& field, RoutingFlips& f) {
  field("tokens", f.tokens);
  field("flipped", f.flipped);
}

template <typename A>
void Describe(A& field, TensorComparison& c) {
  field("total", c.total);
  field("instances", c.instances);
  field("regions", c.regions);
  field("routed", c.routed);
  field("candidate_gap", c.candidate_gap);
  field("reference_gap", c.reference_gap);
  field("common_gap", c.common_gap);
  field("candidate_overlap", c.candidate_overlap);
  field("reference_overlap", c.reference_overlap);
}

template <typename A>
void Describe(A& field, ReplicaComparison& r) {
  field("groups", r.groups);
  field("copies", r.copies);
  field("differing", r.differing);
  field("worst_rel_err", r.worst_rel_err);
  field("differing_ranks", r.differing_ranks);
  field("mesh_dims", r.mesh_dims);
}

template <typename A>
void Describe(A& field, PairFacts& p) {
  field("total", p.total);
  field("regions", p.regions);
}

template <typename A>
void Describe(A& field, LegFacts& l) {
  field("plan", l.plan);
  field("candidate", l.candidate);
  field("noise", l.noise);
  field("repeat", l.repeat);
  field("candidate_hp", l.candidate_hp);
  field("reference_hp", l.reference_hp);
  field("replicas", l.replicas);
  field("flips", l.flips);
  field("usable", l.usable);
  field("trouble", l.trouble);
}

template <typename A>
void Describe(A& field, RepeatFacts& r) {
  field("total", r.total);
}

template <typename A>
void Describe(A& field, SkippedUpdate& u) {
  field("ranks", u.ranks);
  field("unchanged", u.unchanged);
  field("changed", u.changed);
  field("far", u.far);
}

template <typename A>
void Describe(A& field, RepeatedParts& p) {
  field("ranks", p.ranks);
  field("owners", p.owners);
}

template <typename A>
void Describe(A& field, TensorId& id) {
  field("fqn", id.fqn);
  field("role", id.role);
  field("iteration", id.iteration);
  field("call", id.call);
  field("arg", id.arg);
  field("pass", id.pass);
}

template <typename A>
void Describe(A& field, TensorFacts& f) {
  field("id", f.id);
  field("order", f.order);
  field("in_reference", f.in_reference);
  field("exact", f.exact);
  field("vector", f.vector);
  field("lookup", f.lookup);
  field("batch_unknown", f.batch_unknown);
  field("complete", f.complete);
  field("dtype", f.dtype);
  field("reference_shape", f.reference_shape);
  field("candidate_shape", f.candidate_shape);
  field("candidate_repeat", f.candidate_repeat);
  field("reference_repeat", f.reference_repeat);
  field("replicas", f.replicas);
  field("legs", f.legs);
  field("own", f.own);
  field("update", f.update);
  field("foreign_parts", f.foreign_parts);
  field("unplaced", f.unplaced);
  field("reference_unplaced", f.reference_unplaced);
  field("damage", f.damage);
  field("trouble", f.trouble);
}

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
    } else if constexpr (std::is_same_v<T, Role> || std::is_same_v<T, Pass>) {
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
      Describe(encoder, value);
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
      Describe(inner, *value);
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

// Whether a region lies inside its tensor, which is of a size that can be
// counted.
bool IsSound(const Layout& layout) {
  int64_t count = 1;
  for (const DimLayout& dim : layout.dims) {
    if (dim.global_size < 0 ||
        __builtin_mul_overflow(count, dim.global_size, &count)) {
      return false;
    }
    int64_t end = 0;
    for (const Segment& s : dim.segments) {
      if (s.begin < 0 || s.size < 0 || s.begin > dim.global_size - s.size ||
          __builtin_add_overflow(end, s.size, &end)) {
        return false;
      }
    }
  }
  return true;
}

bool IsSound(const TensorComparison& comparison) {
  const auto regions = static_cast<int64_t>(comparison.regions.size());
  for (const Layout& layout : comparison.regions) {
    if (!IsSound(layout)) return false;
  }
  for (const InstanceStats& instance : comparison.instances) {
    if (instance.region < 0 || instance.region >= regions) return false;
  }
  return true;
}

bool IsSound(const TensorFacts& facts) {
  for (const LegFacts& leg : facts.legs) {
    if (!IsSound(leg.candidate)) return false;
  }
  return !facts.own || IsSound(*facts.own);
}

}  // namespace

std::string EncodeFacts(const TensorFacts& facts) {
  TensorFacts copy = facts;  // Describe serves the decoder, too
  return Encoder::Encode(copy).dump(-1, ' ', true,
                                    Json::error_handler_t::replace);
}

Result<TensorFacts> DecodeFacts(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) {
    return Error(ErrorCode::kCorrupt, "facts: no JSON object");
  }
  TensorFacts facts;
  std::string bad;
  Decoder decoder(json, &bad);
  Describe(decoder, facts);
  if (!bad.empty()) {
    return Error(ErrorCode::kCorrupt, "facts: bad or missing field " + bad);
  }
  if (!IsSound(facts)) {
    return Error(ErrorCode::kCorrupt, "facts: a region outside its tensor");
  }
  return facts;
}

}  // namespace ttrace
