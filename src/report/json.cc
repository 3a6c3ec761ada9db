// result.json. The head is indented for people; culprits and tensors are one
// object a line, so that grep and diff work on files with many tensors, and so
// that no document of the whole is built in memory.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/format.h"
#include "src/judge/origin_words.h"
#include "src/judge/reason_words.h"
#include "src/localize/bug_class.h"
#include "src/localize/contradiction_words.h"
#include "src/report/json_numbers.h"
#include "src/report/render.h"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 2;

Json Number(double value) {
  const std::string_view spelled = SpelledNumber(value);
  return spelled.empty() ? Json(value) : Json(spelled);
}

// For fields where NaN says that nothing was measured.
Json NumberOrNull(double value) {
  return std::isnan(value) ? Json(nullptr) : Number(value);
}

// ASCII only, which also escapes DEL and everything that acts on a terminal.
// Bytes that are not UTF-8 become U+FFFD: the file must parse, whatever a name
// holds.
std::string Dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

Json IdJson(const TensorId& id) {
  return {{"fqn", id.fqn},
          {"role", ToString(id.role)},
          {"iteration", id.iteration},
          {"call", id.call},
          {"arg", id.arg},
          {"pass", ToString(id.pass)}};
}

Json TestJson(const Test& test) {
  Json json = {{"statistic", ToString(test.statistic)},
               {"value", Number(test.value)},
               {"bound", Number(test.bound)},
               {"headroom", Number(test.headroom)},
               {"origin", ToString(test.expected.origin)},
               {"expected", Number(test.expected.scale)},
               {"factor", Number(test.expected.factor)},
               {"noise", Number(test.noise)},
               {"value_hp", NumberOrNull(test.value_fp32)},
               {"reference_hp", NumberOrNull(test.reference_fp32)}};
  if (!test.ranks.empty()) {
    json["ranks"] = test.ranks;
    json["micro_batch"] = test.micro_batch;
  }
  return json;
}

// Those of the whole, and of the pieces the one that comes closest.
Json TestsJson(const LegJudgement& leg) {
  Json tests = Json::array();
  const Test* piece = nullptr;
  for (const Test& test : leg.tests) {
    if (test.statistic != Statistic::kPiece) {
      tests.push_back(TestJson(test));
    } else if (piece == nullptr || test.headroom > piece->headroom) {
      piece = &test;
    }
  }
  if (piece != nullptr) tests.push_back(TestJson(*piece));
  return tests;
}

Json LegJson(const LegJudgement& leg) {
  const ErrorStats& stats = leg.stats;
  Json json = {{"leg", leg.leg.name()},
               {"err", Number(leg.err)},
               {"bound", Number(leg.bound)},
               {"headroom", Number(leg.headroom)},
               {"checkable", leg.checkable},
               {"provenance", OriginWords(leg)},
               {"statistic", leg.deciding() == nullptr
                                 ? Json(nullptr)
                                 : Json(ToString(leg.deciding()->statistic))},
               {"tests", TestsJson(leg)},
               {"noise", Number(leg.noise)},
               {"ranks", leg.ranks},
               {"elements", stats.count},
               {"mismatched", stats.mismatched},
               {"max_abs_err", Number(stats.max_abs_err)},
               {"max_abs_ref", Number(stats.max_abs_ref)},
               {"projection", Number(stats.projection())},
               {"residual", Number(stats.residual())}};
  if (leg.deciding() != nullptr &&
      leg.deciding()->statistic != Statistic::kNorm) {
    json["decided"] = {{"value", Number(leg.deciding()->value)},
                       {"bound", Number(leg.deciding()->bound)},
                       {"noise", Number(leg.deciding()->noise)}};
  }
  if (leg.fidelity != Fidelity::kValues) {
    json["fidelity"] = ToString(leg.fidelity);
    if (stats.estimated()) {
      json["err_low"] = Number(stats.AtLow().rel_err());
      json["err_high"] = Number(stats.AtHigh().rel_err());
    }
    if (leg.reordered) json["reordered"] = true;
  }
  if (leg.routed) {
    json["routed"] = {{"reference", leg.routed->reference},
                      {"candidate", leg.routed->candidate},
                      {"only_reference", leg.routed->only_reference},
                      {"only_candidate", leg.routed->only_candidate}};
  }
  if (leg.flips) {
    json["flips"] = {{"tokens", leg.flips->tokens},
                     {"flipped", leg.flips->flipped},
                     {"tied", leg.flips->tied}};
  }
  json["nonfinite"] = {{"reference", stats.nonfinite_ref},
                       {"candidate", stats.nonfinite_cand},
                       {"differ", stats.nonfinite_differ}};
  return json;
}

Json ReplicasJson(const ReplicaComparison& replicas) {
  return {{"groups", replicas.groups},
          {"copies", replicas.copies},
          {"differing", replicas.differing},
          {"worst_rel_err", Number(replicas.worst_rel_err)},
          {"ranks", replicas.differing_ranks},
          {"mesh_dims", replicas.mesh_dims}};
}

Json IsolatedJson(const TensorJudgement& tensor) {
  if (!tensor.isolated) return nullptr;
  const TensorJudgement::Isolated& alone = *tensor.isolated;
  Json json = {{"verdict", ToString(alone.verdict)},
               {"headroom", Number(alone.headroom)},
               {"leg", nullptr},
               {"replaced", alone.replaced},
               {"replicas_differ", alone.replicas_differ},
               {"ranks", alone.ranks},
               {"reason", ReasonWords(alone.reason)}};
  if (alone.deciding_leg >= 0) {
    json["leg"] =
        tensor.legs[static_cast<size_t>(alone.deciding_leg)].leg.name();
  }
  return json;
}

Json FormJson(const TensorForm& form) {
  Json json = {{"shape", form.shape}, {"dtype", nullptr}};
  if (form.dtype) json["dtype"] = Info(*form.dtype).torch_name;
  return json;
}

Json CauseJson(const TensorCause& cause) {
  if (cause.culprit < 0) return nullptr;
  return {{"culprit", cause.culprit}, {"as", ToString(cause.as)}};
}

// The tensor at `index`.
Json TensorJson(const CheckResult& result, size_t index) {
  const TensorJudgement& tensor = result.tensors[index];
  Json json = IdJson(tensor.id);
  json["verdict"] = ToString(tensor.verdict);
  json["headroom"] = Number(tensor.headroom);
  const LegJudgement* deciding = tensor.deciding();
  json["leg"] =
      deciding == nullptr ? Json(nullptr) : Json(deciding->leg.name());
  json["legs"] = Json::array();
  for (const LegJudgement& leg : tensor.legs) {
    json["legs"].push_back(LegJson(leg));
  }
  json["isolated"] = IsolatedJson(tensor);
  json["reason"] = ReasonWords(tensor.reason);
  json["explained"] = tensor.excused;
  json["ranks"] = tensor.ranks;
  json["order"] = tensor.order;
  json["nonfinite"] = tensor.nonfinite;
  json["replicas_differ"] = tensor.replicas_differ;
  if (tensor.replicas.copies > 0) {
    json["replicas"] = ReplicasJson(tensor.replicas);
  }
  if (index < result.forms.size()) json.update(FormJson(result.forms[index]));
  if (index < result.causes.size()) {
    json["cause"] = CauseJson(result.causes[index]);
  }
  return json;
}

Json SourceJson(const SourcePlace& source) {
  if (source.file.empty()) return nullptr;
  return {{"file", source.file}, {"line", source.line}, {"text", source.words}};
}

// Of a picture: three digits are more than it shows.
Json Rounded(double value) {
  if (!std::isfinite(value) || value == 0) return Number(value);
  return std::stod(fmt::format("{:.3g}", value));
}

Json PatternJson(const std::optional<ErrorPattern>& pattern) {
  if (!pattern) return nullptr;
  Json errors = Json::array();
  for (const double error : pattern->errors) errors.push_back(Rounded(error));
  Json pieces = Json::array();
  for (const ErrorPattern::Piece& piece : pattern->pieces) {
    pieces.push_back({{"ranks", piece.ranks},
                      {"micro_batch", piece.micro_batch},
                      {"box", piece.box},
                      {"err", Number(piece.err)},
                      {"mismatched", piece.mismatched},
                      {"elements", piece.elements}});
  }
  return {{"leg", pattern->leg.name()},
          {"dims", {pattern->row_dim, pattern->column_dim}},
          {"rows", pattern->rows},
          {"columns", pattern->columns},
          {"errors", std::move(errors)},
          {"sampled", pattern->sampled},
          {"pieces", std::move(pieces)},
          {"pieces_of", pattern->pieces_of}};
}

Json CulpritJson(const Culprit& culprit) {
  Json classes = Json::array();
  for (const Diagnosis& diagnosis : culprit.classes) {
    classes.push_back(
        {{"class", LetterOf(diagnosis.bug_class)},
         {"name", NameOf(diagnosis.bug_class, culprit.tensor.role)},
         {"evidence", diagnosis.evidence},
         {"value", NumberOrNull(diagnosis.value)}});
  }
  Json contradictions = Json::array();
  for (const Contradiction& one : culprit.contradictions) {
    contradictions.push_back(ContradictionWords(one));
  }
  return {{"fqn", culprit.fqn},
          {"name_in_candidate", culprit.name_in_candidate},
          {"source", SourceJson(culprit.source)},
          {"role", ToString(culprit.tensor.role)},
          {"direction", ToString(culprit.direction)},
          {"stage", ToString(culprit.stage)},
          {"ranks", culprit.ranks},
          {"iteration", culprit.iteration},
          {"headroom", Number(culprit.headroom)},
          {"affected",
           {{"count", culprit.affected.count},
            {"of", culprit.affected.of},
            {"examples", culprit.affected.examples}}},
          {"classes", std::move(classes)},
          {"tensor", IdJson(culprit.tensor)},
          {"where", culprit.where},
          {"found_by", culprit.found_by},
          {"disagreement", culprit.disagreement},
          {"contradictions", std::move(contradictions)},
          {"hints", culprit.hints},
          {"pattern", PatternJson(culprit.pattern)}};
}

Json GridJson(const GridSummary& grid) {
  Json axes = Json::array();
  for (const MeshDim& dim : grid.mesh.dims) {
    axes.push_back({{"name", dim.name}, {"size", dim.size}});
  }
  return {{"name", grid.name},
          {"axes", std::move(axes)},
          {"coordinates", grid.coordinates}};
}

Json ModuleJson(const ModuleSummary& module) {
  Json json = {{"fqn", module.fqn}, {"class", module.class_name}};
  if (!module.file.empty()) {
    json["file"] = module.file;
    json["line"] = module.line;
  }
  return json;
}

Json SideJson(const SideSummary& side) {
  Json grids = Json::array();
  for (const GridSummary& grid : side.grids) grids.push_back(GridJson(grid));
  return {{"folder", side.folder},
          {"mesh", side.mesh},
          {"world_size", side.world_size},
          {"legs", NamesOf(side.legs)},
          {"grids", std::move(grids)}};
}

// Legs in which a tensor was judged, in the order in which judgements list
// them ("real" first).
Json JudgedLegs(const CheckResult& result) {
  Json legs = Json::array();
  std::set<Leg> seen;
  for (const TensorJudgement& tensor : result.tensors) {
    for (const LegJudgement& leg : tensor.legs) {
      if (seen.insert(leg.leg).second) legs.push_back(leg.leg.name());
    }
  }
  return legs;
}

Json HeadJson(const CheckResult& result) {
  Json head = {{"schema", kSchema},
               {"verdict", ToString(result.verdict)},
               {"exit_code", ExitCode(result.verdict)},
               {"reason", result.reason}};
  Json explained = Json::object();
  for (const auto& [reason, count] : result.coverage.excused) {
    // A key must be distinct, so its bytes are escaped rather than replaced.
    explained[Printable(reason)] = count;
  }
  head["coverage"] = {{"compared", result.coverage.compared},
                      {"reference_only", result.coverage.reference_only},
                      {"candidate_only", result.coverage.candidate_only},
                      {"explained", std::move(explained)}};
  head["sides"] = {
      {"reference",
       result.has_reference ? SideJson(result.reference) : Json(nullptr)},
      {"candidate", SideJson(result.candidate)}};
  head["legs"] = JudgedLegs(result);
  head["iterations"] = result.iterations;
  Json clean = Json::array();
  for (const CleanCount& count : result.clean) {
    clean.push_back({{"kind", count.kind},
                     {"clean", count.clean},
                     {"of", count.of},
                     {"not_checkable", count.open},
                     {"not_checkable_but_isolated", count.open_but_isolated}});
  }
  head["clean"] = std::move(clean);
  head["suspects"] = result.suspects;
  head["not_checkable"] = result.not_checkable;
  if (result.by_fidelity[1] + result.by_fidelity[2] > 0) {
    head["fidelity"] = {{"values", result.by_fidelity[0]},
                        {"sketch", result.by_fidelity[1]},
                        {"digest", result.by_fidelity[2]}};
  }
  head["downstream"] = result.downstream;
  const IsolationSummary& isolation = result.isolation;
  head["isolation"] = isolation.ran ? Json{{"judged", isolation.judged},
                                           {"of", isolation.of},
                                           {"faulty", isolation.faulty},
                                           {"hidden", isolation.hidden},
                                           {"disputed", isolation.disputed},
                                           {"rescued", isolation.rescued}}
                                    : Json(nullptr);
  head["routing"] = result.routing.tokens > 0
                        ? Json{{"tokens", result.routing.tokens},
                               {"otherwise", result.routing.otherwise},
                               {"tied", result.routing.tied}}
                        : Json(nullptr);
  head["seconds"] = Number(result.seconds);
  head["bytes_compared"] = result.bytes_compared;
  head["bitwise"] = result.bitwise;
  head["risk"] = Number(result.risk);
  head["tests"] = result.tests;
  Json notes = Json::array();
  for (const RunNote& note : result.notes) {
    notes.push_back({{"kind", ToString(note.kind)}, {"text", NoteWords(note)}});
  }
  head["notes"] = std::move(notes);
  head["next_steps"] = result.next_steps;
  return head;
}

// `count` objects, a line each.
template <typename ToJson>
void AppendLines(const char* key, size_t count, ToJson to_json,
                 std::string* out) {
  *out += ",\n  \"";
  *out += key;
  *out += "\": [";
  const char* separator = "\n    ";
  for (size_t i = 0; i < count; ++i) {
    *out += separator;
    *out += Dump(to_json(i));
    separator = ",\n    ";
  }
  *out += count == 0 ? "]" : "\n  ]";
}

}  // namespace

std::string RenderJson(const CheckResult& result) {
  std::string out = Dump(HeadJson(result), 2);
  // Cut "\n}", the end of the head's object, and go on inside it.
  out.resize(out.size() - 2);
  AppendLines(
      "modules", result.modules.size(),
      [&](size_t i) { return ModuleJson(result.modules[i]); }, &out);
  AppendLines(
      "culprits", result.culprits.size(),
      [&](size_t i) { return CulpritJson(result.culprits[i]); }, &out);
  AppendLines(
      "contested", result.contested.size(),
      [&](size_t i) { return CulpritJson(result.contested[i]); }, &out);
  AppendLines(
      "tensors", result.tensors.size(),
      [&](size_t i) { return TensorJson(result, i); }, &out);
  out += "\n}\n";
  return out;
}

}  // namespace ttrace
