#include "src/measure/facts_json.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "src/measure/json_fields.h"
#include "src/measure/sound_facts.h"

namespace ttrace {

std::string EncodeFacts(const TensorFacts& facts) {
  return JsonEncoder::Line(facts);
}

Result<TensorFacts> DecodeFacts(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) {
    return Error(ErrorCode::kCorrupt, "facts: no JSON object");
  }
  // Not on the stack: GCC 12 sees uninitialised members there.
  const auto facts = std::make_unique<TensorFacts>();
  std::string bad;
  JsonDecoder decoder(json, &bad);
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
