#include "src/report/result_file.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "src/base/format.h"
#include "src/report/json_reader.h"
#include "src/trace/file.h"

namespace ttrace {
namespace {

constexpr int64_t kNewestSchema = 2;

// As large as a result of a very large model.
constexpr size_t kLargest = size_t{1} << 30;

void ReadGrid(ObjectReader& fields, ResultFile::Grid* out) {
  fields.Read("name", &out->name);
  fields.Objects("axes", &out->axes,
                 [](ObjectReader& one, ResultFile::Axis* axis) {
                   one.Read("name", &axis->name);
                   one.Read("size", &axis->size);
                 });
  fields.Read("coordinates", &out->coordinates);
}

void ReadSide(ObjectReader& fields, ResultFile::Side* out) {
  fields.Read("folder", &out->folder);
  fields.Read("mesh", &out->mesh);
  fields.Read("world_size", &out->world_size);
  fields.Read("legs", &out->legs);
  fields.Objects("grids", &out->grids, ReadGrid);
}

void ReadId(ObjectReader& fields, ResultFile::Id* out) {
  fields.Read("fqn", &out->fqn);
  fields.Read("role", &out->role);
  fields.Read("iteration", &out->iteration);
  fields.Read("call", &out->call);
  fields.Read("arg", &out->arg);
  fields.Read("pass", &out->pass);
}

void ReadPiece(ObjectReader& fields, ResultFile::Pattern::Piece* out) {
  fields.Read("ranks", &out->ranks);
  fields.Read("micro_batch", &out->micro_batch);
  fields.Read("box", &out->box);
  fields.Read("err", &out->err);
  fields.Read("mismatched", &out->mismatched);
  fields.Read("elements", &out->elements);
}

void ReadPattern(ObjectReader& fields, ResultFile::Pattern* out) {
  fields.Read("leg", &out->leg);
  fields.Read("dims", &out->dims);
  fields.Read("rows", &out->rows);
  fields.Read("columns", &out->columns);
  fields.Read("errors", &out->errors);
  fields.Read("sampled", &out->sampled);
  fields.Objects("pieces", &out->pieces, ReadPiece);
  fields.Read("pieces_of", &out->pieces_of);
}

void ReadPlace(ObjectReader& fields, ResultFile::Place* out) {
  fields.Read("fqn", &out->fqn);
  fields.Read("name_in_candidate", &out->name_in_candidate);
  fields.Object("source", [&](ObjectReader& source) {
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
  fields.Object("affected", [&](ObjectReader& affected) {
    affected.Read("count", &out->affected);
    affected.Read("of", &out->affected_of);
    affected.Read("examples", &out->affected_examples);
  });
  fields.Objects("classes", &out->classes,
                 [](ObjectReader& one, ResultFile::Class* of) {
                   one.Read("class", &of->letter);
                   one.Read("name", &of->name);
                   one.Read("evidence", &of->evidence);
                 });
  fields.Object("tensor", [&](ObjectReader& id) { ReadId(id, &out->tensor); });
  fields.Read("where", &out->where);
  fields.Read("found_by", &out->found_by);
  fields.Read("disagreement", &out->disagreement);
  fields.Read("contradictions", &out->contradictions);
  fields.Read("hints", &out->hints);
  fields.Object("pattern", &out->pattern, ReadPattern);
}

void ReadLeg(ObjectReader& fields, ResultFile::Leg* out) {
  fields.Read("leg", &out->leg);
  fields.Read("err", &out->err);
  fields.Read("bound", &out->bound);
  fields.Read("headroom", &out->headroom);
  fields.Read("checkable", &out->checkable);
  fields.Read("provenance", &out->provenance);
  fields.Read("statistic", &out->statistic);
  fields.Read("noise", &out->noise);
  fields.Object("decided", [&](ObjectReader& decided) {
    decided.Read("value", &out->err);
    decided.Read("bound", &out->bound);
    decided.Read("noise", &out->noise);
  });
  fields.Read("ranks", &out->ranks);
  fields.Read("elements", &out->elements);
  fields.Read("mismatched", &out->mismatched);
  fields.Read("max_abs_err", &out->max_abs_err);
  fields.Read("max_abs_ref", &out->max_abs_ref);
  fields.Read("projection", &out->projection);
  fields.Read("fidelity", &out->fidelity);
}

void ReadIsolated(ObjectReader& fields, ResultFile::Isolated* out) {
  fields.Read("verdict", &out->verdict);
  fields.Read("headroom", &out->headroom);
  fields.Read("leg", &out->leg);
  fields.Read("replaced", &out->replaced);
  fields.Read("reason", &out->reason);
}

void ReadCopies(ObjectReader& fields, ResultFile::Copies* out) {
  fields.Read("groups", &out->groups);
  fields.Read("copies", &out->copies);
  fields.Read("differing", &out->differing);
  fields.Read("worst_rel_err", &out->worst_rel_err);
  fields.Read("ranks", &out->ranks);
  fields.Read("mesh_dims", &out->mesh_dims);
}

void ReadTensor(ObjectReader& fields, ResultFile::Tensor* out) {
  ReadId(fields, out);
  fields.Read("order", &out->order);
  fields.Read("verdict", &out->verdict);
  fields.Read("headroom", &out->headroom);
  fields.Read("leg", &out->leg);
  fields.Objects("legs", &out->legs, ReadLeg);
  fields.Read("reason", &out->reason);
  fields.Read("explained", &out->explained);
  fields.Object("isolated", &out->isolated, ReadIsolated);
  fields.Read("ranks", &out->ranks);
  fields.Read("nonfinite", &out->nonfinite);
  fields.Read("replicas_differ", &out->replicas_differ);
  fields.Object("replicas", &out->copies, ReadCopies);
  fields.Read("shape", &out->shape);
  fields.Read("dtype", &out->dtype);
  fields.Object("cause", [&](ObjectReader& cause) {
    cause.Read("culprit", &out->culprit);
    cause.Read("as", &out->cause);
  });
}

void ReadModule(ObjectReader& fields, ResultFile::Module* out) {
  fields.Read("fqn", &out->fqn);
  fields.Read("class", &out->class_name);
  fields.Read("file", &out->source_file);
  fields.Read("line", &out->source_line);
}

void ReadIsolation(ObjectReader& fields, ResultFile::Isolation* out) {
  fields.Read("judged", &out->judged);
  fields.Read("of", &out->of);
  fields.Read("faulty", &out->faulty);
  fields.Read("hidden", &out->hidden);
  fields.Read("disputed", &out->disputed);
  fields.Read("rescued", &out->rescued);
}

void ReadCounts(ObjectReader& fields, ResultFile* out) {
  fields.Objects(
      "clean", &out->clean, [](ObjectReader& one, ResultFile::Kind* of) {
        one.Read("kind", &of->kind);
        one.Read("clean", &of->clean);
        one.Read("of", &of->of);
        one.Read("not_checkable", &of->not_checkable);
        one.Read("not_checkable_but_isolated", &of->not_checkable_but_isolated);
      });
  fields.Read("suspects", &out->suspects);
  fields.Read("not_checkable", &out->not_checkable);
  fields.Read("downstream", &out->downstream);
  fields.Object("isolation", &out->isolation, ReadIsolation);
  fields.Object("routing", &out->routing,
                [](ObjectReader& one, ResultFile::Routing* of) {
                  one.Read("tokens", &of->tokens);
                  one.Read("otherwise", &of->otherwise);
                  one.Read("tied", &of->tied);
                });
  fields.Read("seconds", &out->seconds);
  fields.Read("bytes_compared", &out->bytes_compared);
  fields.Read("tests", &out->tests);
  fields.Read("risk", &out->risk);
}

void ReadHead(ObjectReader& fields, ResultFile* out) {
  fields.Read("verdict", &out->verdict);
  fields.Read("exit_code", &out->exit_code);
  fields.Read("reason", &out->reason);
  fields.Object("coverage", [&](ObjectReader& coverage) {
    coverage.Read("compared", &out->compared);
    coverage.Read("reference_only", &out->reference_only);
    coverage.Read("candidate_only", &out->candidate_only);
    coverage.Members("explained", &out->explained);
  });
  fields.Object("sides", [&](ObjectReader& sides) {
    sides.Object("reference", [&](ObjectReader& side) {
      out->has_reference = true;
      ReadSide(side, &out->reference);
    });
    sides.Object("candidate",
                 [&](ObjectReader& side) { ReadSide(side, &out->candidate); });
  });
  fields.Read("legs", &out->legs);
  fields.Read("iterations", &out->iterations);
  fields.Read("bitwise", &out->bitwise);
  fields.Objects("notes", &out->notes,
                 [](ObjectReader& one, ResultFile::Note* note) {
                   one.Read("kind", &note->kind);
                   one.Read("text", &note->text);
                 });
  fields.Read("next_steps", &out->next_steps);
  fields.Objects("modules", &out->modules, ReadModule);
}

// The single tests of legs are most of a result, and no report shows them:
// they are dropped as they are read, for a document of a third of the memory.
ReadJson ParseWithoutTests(std::string_view text) {
  const auto keep = [](int depth, ReadJson::parse_event_t event,
                       const ReadJson& value) {
    return event != ReadJson::parse_event_t::key || depth == 1 ||
           value != "tests";
  };
  return ReadJson::parse(text, keep, false);
}

}  // namespace

int64_t ResultFile::ExplainedCount() const {
  int64_t sum = 0;
  for (const auto& [why, count] : explained) {
    sum = std::clamp(sum + count, -kLargestInteger, kLargestInteger);
  }
  return sum;
}

Result<ResultFile> ParseResult(std::string_view text) {
  static const std::map<std::string, int64_t> kExitCodes = {
      {"bitwise_equal", 0},
      {"within", 0},
      {"diverged", 1},
      {"inconclusive", 2}};
  const ReadJson json = ParseWithoutTests(text);
  ObjectReader fields(json);
  int64_t schema = 0;
  fields.Read("schema", &schema);
  ResultFile out;
  ReadHead(fields, &out);
  ReadCounts(fields, &out);
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
