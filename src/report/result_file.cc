#include "src/report/result_file.h"

#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/format.h"
#include "src/trace/file.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using ReadJson = nlohmann::json;

constexpr int64_t kNewestSchema = 2;

// As large as a result of a very large model.
constexpr size_t kLargest = size_t{1} << 30;

bool Take(const ReadJson& value, std::string* out) {
  if (!value.is_string()) return false;
  *out = value.get<std::string>();
  return true;
}

bool Take(const ReadJson& value, int64_t* out) {
  if (!value.is_number_integer()) return false;
  *out = value.get<int64_t>();
  return true;
}

bool Take(const ReadJson& value, bool* out) {
  if (!value.is_boolean()) return false;
  *out = value.get<bool>();
  return true;
}

// What JSON cannot spell is text.
bool Take(const ReadJson& value, double* out) {
  static const std::map<std::string, double> kSpelled = {
      {"NaN", std::numeric_limits<double>::quiet_NaN()},
      {"Infinity", std::numeric_limits<double>::infinity()},
      {"-Infinity", -std::numeric_limits<double>::infinity()}};
  if (value.is_number()) {
    *out = value.get<double>();
    return true;
  }
  if (!value.is_string()) return false;
  const auto spelled = kSpelled.find(value.get<std::string>());
  if (spelled == kSpelled.end()) return false;
  *out = spelled->second;
  return true;
}

template <typename T>
bool Take(const ReadJson& value, std::vector<T>* out) {
  if (!value.is_array()) return false;
  out->reserve(value.size());
  for (const ReadJson& item : value) {
    if (!Take(item, &out->emplace_back())) return false;
  }
  return true;
}

// Reads the fields of one object after another. The first that is of another
// type than is asked for is remembered, and all that follow are left out.
class Fields {
 public:
  // REQUIRES: outlived by `json`.
  explicit Fields(const ReadJson& json) : json_(json) {
    if (!json.is_object()) problem_ = "an object is expected";
  }

  template <typename T>
  void Read(const char* key, T* out) {
    const ReadJson* value = Find(key);
    if (value != nullptr && !Take(*value, out)) {
      problem_ = "'" + std::string(key) + "' is of another type";
    }
  }
  // `read` is given the fields of the object at `key`.
  template <typename ReadFields>
  void Object(const char* key, ReadFields read) {
    const ReadJson* value = Find(key);
    if (value == nullptr) return;
    Fields object(*value);
    read(object);
    AddProblem(key, object);
  }
  // The same of each object of a list.
  template <typename T, typename ReadFields>
  void Objects(const char* key, std::vector<T>* out, ReadFields read) {
    const ReadJson* value = Find(key);
    if (value == nullptr) return;
    out->reserve(value->size());
    for (const ReadJson& item : *value) {
      Fields object(item);
      read(object, &out->emplace_back());
      AddProblem(key, object);
    }
  }

  const std::string& problem() const { return problem_; }

 private:
  // Null if it is not there, and if something was wrong before.
  const ReadJson* Find(const char* key) const {
    if (!problem_.empty()) return nullptr;
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  void AddProblem(const char* key, const Fields& inner) {
    if (problem_.empty() && !inner.problem_.empty()) {
      problem_ = "in '" + std::string(key) + "': " + inner.problem_;
    }
  }

  const ReadJson& json_;
  std::string problem_;
};

void ReadSide(Fields& fields, ResultFile::Side* out) {
  fields.Read("folder", &out->folder);
  fields.Read("mesh", &out->mesh);
  fields.Read("world_size", &out->world_size);
}

void ReadId(Fields& fields, ResultFile::Id* out) {
  fields.Read("fqn", &out->fqn);
  fields.Read("role", &out->role);
  fields.Read("iteration", &out->iteration);
  fields.Read("call", &out->call);
  fields.Read("arg", &out->arg);
  fields.Read("pass", &out->pass);
}

void ReadPlace(Fields& fields, ResultFile::Place* out) {
  fields.Read("fqn", &out->fqn);
  fields.Read("name_in_candidate", &out->name_in_candidate);
  fields.Object("source", [&](Fields& source) {
    source.Read("file", &out->source_file);
    source.Read("line", &out->source_line);
    source.Read("text", &out->source_text);
  });
  fields.Read("role", &out->role);
  fields.Read("direction", &out->direction);
  fields.Read("stage", &out->stage);
  fields.Read("ranks", &out->ranks);
  fields.Read("iteration", &out->iteration);
  fields.Read("headroom", &out->headroom);
  fields.Object("affected", [&](Fields& affected) {
    affected.Read("count", &out->affected);
    affected.Read("of", &out->affected_of);
  });
  fields.Object("tensor",
                [&](Fields& tensor) { ReadId(tensor, &out->tensor); });
  fields.Objects("classes", &out->classes,
                 [](Fields& one, ResultFile::Class* of) {
                   one.Read("class", &of->letter);
                   one.Read("name", &of->name);
                   one.Read("evidence", &of->evidence);
                 });
  fields.Read("where", &out->where);
  fields.Read("hints", &out->hints);
}

void ReadTensor(Fields& fields, ResultFile::Tensor* out) {
  ReadId(fields, out);
  fields.Read("verdict", &out->verdict);
  fields.Read("headroom", &out->headroom);
  fields.Read("reason", &out->reason);
  fields.Read("explained", &out->explained);
  fields.Object("isolated", [&](Fields& isolated) {
    isolated.Read("verdict", &out->verdict_isolated);
  });
}

void ReadHead(Fields& fields, ResultFile* out) {
  fields.Read("verdict", &out->verdict);
  fields.Read("exit_code", &out->exit_code);
  fields.Read("reason", &out->reason);
  fields.Object("coverage", [&](Fields& coverage) {
    coverage.Read("compared", &out->compared);
    coverage.Read("reference_only", &out->reference_only);
    coverage.Read("candidate_only", &out->candidate_only);
  });
  fields.Object("sides", [&](Fields& sides) {
    sides.Object("reference", [&](Fields& side) {
      out->has_reference = true;
      ReadSide(side, &out->reference);
    });
    sides.Object("candidate",
                 [&](Fields& side) { ReadSide(side, &out->candidate); });
  });
  fields.Read("iterations", &out->iterations);
  fields.Objects("clean", &out->clean, [](Fields& one, ResultFile::Kind* of) {
    one.Read("kind", &of->kind);
    one.Read("clean", &of->clean);
    one.Read("of", &of->of);
  });
  fields.Read("seconds", &out->seconds);
  fields.Read("downstream", &out->downstream);
  fields.Objects("notes", &out->notes, [](Fields& one, std::string* text) {
    one.Read("text", text);
  });
  fields.Read("next_steps", &out->next_steps);
}

}  // namespace

Result<ResultFile> ParseResult(std::string_view text) {
  static const std::map<std::string, int64_t> kExitCodes = {
      {"bitwise_equal", 0},
      {"within", 0},
      {"diverged", 1},
      {"inconclusive", 2}};
  const ReadJson json = ParseJson(std::string(text));
  Fields fields(json);
  int64_t schema = 0;
  fields.Read("schema", &schema);
  ResultFile out;
  ReadHead(fields, &out);
  if (schema > kNewestSchema) {
    return Error(ErrorCode::kUnsupported,
                 "it is of schema " + std::to_string(schema) +
                     ", and this ttrace knows none after " +
                     std::to_string(kNewestSchema) +
                     ": use the ttrace that wrote it, or a later one");
  }
  fields.Objects("culprits", &out.culprits, ReadPlace);
  fields.Objects("contested", &out.contested, ReadPlace);
  fields.Objects("tensors", &out.tensors, ReadTensor);
  if (!fields.problem().empty()) {
    return Error(ErrorCode::kCorrupt, "not a result: " + fields.problem());
  }
  const auto code = kExitCodes.find(out.verdict);
  if (schema < 1 || code == kExitCodes.end() || code->second != out.exit_code) {
    return Error(ErrorCode::kCorrupt,
                 "not a result: schema, verdict and exit code are none of "
                 "ttrace's");
  }
  return out;
}

Result<ResultFile> ReadResult(const std::string& path) {
  std::error_code missing;
  const std::string file = std::filesystem::is_directory(path, missing)
                               ? path + "/result.json"
                               : path;
  TTRACE_ASSIGN_OR_RETURN(const std::string text,
                          ReadWholeFile(file, kLargest, Links::kFollow));
  auto result = ParseResult(text);
  if (result.ok()) return result;
  return result.error().WithContext("'" + Printable(file) + "'");
}

}  // namespace ttrace
