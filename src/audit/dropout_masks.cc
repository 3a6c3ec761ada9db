#include "src/audit/dropout_masks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

// Reads fields of one object and remembers whether any was not as expected.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  void Read(const char* key, std::string* out) {
    if (const Json* value = Find(key, &Json::is_string)) {
      *out = value->get<std::string>();
    }
  }
  void Read(const char* key, int64_t* out) {
    if (const Json* value = Find(key, &Json::is_number_integer)) {
      *out = value->get<int64_t>();
    }
  }
  void Read(const char* key, int* out) {
    int64_t wide = 0;
    Read(key, &wide);
    ok_ &= wide >= 0 && wide <= INT32_MAX;
    if (ok_) *out = static_cast<int>(wide);
  }
  void Read(const char* key, double* out) {
    if (const Json* value = Find(key, &Json::is_number)) {
      *out = value->get<double>();
    }
  }
  void Read(const char* key, bool* out) {
    if (const Json* value = Find(key, &Json::is_boolean)) {
      *out = value->get<bool>();
    }
  }
  void Read(const char* key, std::vector<double>* out) {
    const Json* list = Find(key, &Json::is_array);
    if (list == nullptr) return;
    for (const Json& value : *list) {
      ok_ &= value.is_number();
      if (ok_) out->push_back(value.get<double>());
    }
  }
  bool ok() const { return ok_; }

 private:
  const Json* Find(const char* key, bool (Json::*is)() const noexcept) {
    const auto found = json_.find(key);
    if (found != json_.end() && ((*found).*is)()) return &*found;
    ok_ = false;
    return nullptr;
  }

  const Json& json_;
  bool ok_ = true;
};

std::optional<DropoutMask> ReadMask(int rank, const Json& json) {
  DropoutMask out;
  out.rank = rank;
  std::string pass;
  Fields fields(json);
  fields.Read("iteration", &out.iteration);
  fields.Read("fqn", &out.fqn);
  fields.Read("call", &out.call);
  fields.Read("micro_batch", &out.micro_batch);
  fields.Read("pass", &pass);
  fields.Read("p", &out.p);
  fields.Read("elements", &out.elements);
  fields.Read("input", &out.input);
  fields.Read("mask", &out.mask);
  fields.Read("sample", &out.sample);
  fields.Read("repeats", &out.repeats);
  if (!fields.ok()) return std::nullopt;
  out.recompute = pass == "recompute";
  return out;
}

bool ReadSummary(const Json& json, DropoutFacts* out) {
  int64_t calls = 0;
  bool off = false;
  double p = 0;
  Fields fields(json);
  fields.Read("calls", &calls);
  fields.Read("off", &off);
  fields.Read("p_max", &p);
  if (!fields.ok()) return false;
  if (calls <= 0) return true;
  // A single rank that dropped values makes the run one that did.
  out->off = out->active ? out->off && off : off;
  out->active = true;
  out->p_max = std::max(out->p_max, p);
  const auto alike = json.find("seeded_alike");
  if (alike == json.end() || !alike->is_object()) return true;
  const auto dims = alike->find("dims");
  if (dims == alike->end() || !dims->is_array()) return true;
  for (const Json& dim : *dims) {
    if (dim.is_string()) out->alike.insert(dim.get<std::string>());
  }
  Fields(*alike).Read("why", &out->alike_why);
  return true;
}

}  // namespace

DropoutFacts ReadDropout(const NoteList& notes) {
  DropoutFacts out;
  out.malformed += ForEachNote(
      notes, {"dropout", "dropout_mask"}, [&](const ParsedNote& note) {
        if (note.kind == "dropout") {
          out.malformed += !ReadSummary(note.json, &out);
        } else if (auto mask = ReadMask(note.rank, note.json)) {
          out.masks.push_back(*std::move(mask));
        } else {
          ++out.malformed;
        }
      });
  return out;
}

}  // namespace ttrace
