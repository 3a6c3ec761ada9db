#include "src/experiment/run_facts.h"

#include <fmt/format.h>

#include <string_view>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

// Calls `keep(name, value)` for what the object under `key` holds.
template <typename Keep>
void ForEachAt(const Json& json, const char* key, const Keep& keep) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return;
  for (const auto& [name, value] : found->items()) keep(name, value);
}

void NotMaterialised(int, const Json& json, RunFacts* out) {
  out->not_materialised.emplace(TextAt(json, "fqn"), TextAt(json, "reason"));
}

void AddNotObserved(const Json& json, bool compiled, RunFacts* out) {
  NotObserved why;
  why.reason = TextAt(json, "reason");
  why.way_out = TextAt(json, "way_out");
  why.of_class = TextAt(json, "class");
  why.compiled = compiled;
  out->not_observed.emplace(TextAt(json, "fqn"), std::move(why));
}

void ModuleNotObserved(int, const Json& json, RunFacts* out) {
  AddNotObserved(json, false, out);
}

void Compiled(int, const Json& json, RunFacts* out) {
  AddNotObserved(json, true, out);
}

void NotRecorded(int, const Json& json, RunFacts* out) {
  const std::string fqn = TextAt(json, "fqn");
  const std::string role = TextAt(json, "role");
  out->not_recorded.insert({{fqn, role}, TextAt(json, "reason")});
  if (ParseRole(role) == Role::kGradReduced) out->unrecorded_gradient = fqn;
}

void PresumedAlike(int, const Json& json, RunFacts* out) {
  if (const auto role = ParseRole(TextAt(json, "role"))) {
    out->presumed_alike.insert({TextAt(json, "fqn"), *role});
  }
}

void ReductionOrder(int, const Json& json, RunFacts* out) {
  int64_t index = 0;
  for (const std::string& name : TextsAt(json, "names")) {
    out->reduction_index.emplace(name, index++);
  }
}

void HandsOut(int, const Json& json, RunFacts* out) {
  const std::string module = TextAt(json, "fqn");
  out->escaped_parameters.modules.insert(module);
  if (const std::string name = TextAt(json, "parameter"); !name.empty()) {
    out->escaped_parameters.parameters.insert(
        module.empty() ? name : fmt::format("{}.{}", module, name));
  }
}

void Grafted(int, const Json& json, RunFacts* out) {
  const bool weights = TextAt(json, "what") == "weights";
  (weights ? out->weights_grafted : out->data_grafted) = true;
  if (!weights && CountAt(json, "differs") > 0) {
    out->replaced_data.insert(static_cast<int>(CountAt(json, "iteration")));
  }
}

void StepSkipped(int rank, const Json& json, RunFacts* out) {
  SkippedStep& step =
      out->skipped_steps[static_cast<int>(CountAt(json, "iteration"))];
  if (TrueAt(json, "cleared")) step.cleared_on.insert(rank);
}

void ModulesBeside(int, const Json& json, RunFacts* out) {
  out->models_beside = CountAt(json, "count");
}

void CalledWithoutGradients(int, const Json& json, RunFacts* out) {
  out->called_without_gradients.insert(
      static_cast<int>(CountAt(json, "iteration")));
}

void Modules(int, const Json& json, RunFacts* out) {
  ForEachAt(json, "classes", [&](const std::string& fqn, const Json& name) {
    if (name.is_string()) out->classes.emplace(fqn, name.get<std::string>());
  });
  ForEachAt(json, "roots", [&](const std::string& fqn, const Json&) {
    out->roots.insert(fqn);
  });
}

void GradientNorms(int rank, const Json& json, RunFacts* out) {
  const auto iteration = static_cast<int>(CountAt(json, "iteration"));
  ForEachAt(json, "norms", [&](const std::string& fqn, const Json& norm) {
    if (!norm.is_number()) return;
    GradientNorm& found = out->gradient_norms[{rank, iteration, fqn}];
    found.norm = found.rounded = norm.get<double>();
  });
  ForEachAt(json, "rounded", [&](const std::string& fqn, const Json& norm) {
    const auto found = out->gradient_norms.find({rank, iteration, fqn});
    if (found == out->gradient_norms.end() || !norm.is_number()) return;
    found->second.rounded = norm.get<double>();
  });
}

void PartsOfGradients(int rank, const Json& json, RunFacts* out) {
  const auto iteration = static_cast<int>(CountAt(json, "iteration"));
  const Json largest = json.value("largest", Json::object());
  ForEachAt(json, "squares", [&](const std::string& fqn, const Json& squares) {
    const auto element = largest.find(fqn);
    if (!squares.is_number() || element == largest.end() ||
        !element->is_number()) {
      return;
    }
    const GradientParts parts = {squares.get<double>(), element->get<double>()};
    if (parts.squares < 0 || parts.largest < 0) return;
    out->gradient_parts[{rank, iteration, fqn}] = parts;
  });
}

void PrecisionInside(int, const Json& json, RunFacts* out) {
  const auto dtype = ParseDType(TextAt(json, "dtype"));
  if (dtype && Info(*dtype).floating) {
    out->precision_inside.emplace(TextAt(json, "fqn"), *dtype);
  }
}

void SumsOverTokens(int, const Json& json, RunFacts* out) {
  ForEachAt(json, "norms", [&](const std::string& fqn, const Json& eps) {
    if (eps.is_number()) {
      out->token_sums.norms.emplace(fqn, eps.get<double>());
    }
  });
  ForEachAt(json, "tables", [&](const std::string& fqn, const Json& padding) {
    if (padding.is_number_integer()) {
      out->token_sums.tables.emplace(fqn, padding.get<int64_t>());
    }
  });
}

void RandomDraws(int, const Json& json, RunFacts* out) {
  auto& draws = out->random_draws[{static_cast<int>(CountAt(json, "iteration")),
                                   TextAt(json, "fqn")}];
  for (std::string& draw : TextsAt(json, "draws")) {
    draws.insert(std::move(draw));
  }
}

void LossUnit(int, const Json&, RunFacts* out) {
  out->loss_unit_unknown = true;
}

void Computation(int rank, const Json& json, RunFacts* out) {
  ComputationFact& fact = out->computation[TextAt(json, "name")];
  fact.values[TextAt(json, "value")].push_back(rank);
  fact.option = TextAt(json, "option");
}

using Reader = void (*)(int rank, const Json&, RunFacts*);

const std::map<std::string_view, Reader>& Readers() {
  static const auto& readers = *new std::map<std::string_view, Reader>{
      {"not_materialised", NotMaterialised},
      {"not_observed", ModuleNotObserved},
      {"compiled", Compiled},
      {"not_recorded", NotRecorded},
      {"presumed_alike", PresumedAlike},
      {"reduction_order", ReductionOrder},
      {"hands_out", HandsOut},
      {"graft_begins", Grafted},
      {"graft", Grafted},
      {"skipped_step", StepSkipped},
      {"modules_beside", ModulesBeside},
      {"called_without_gradients", CalledWithoutGradients},
      {"modules", Modules},
      {"gradient_norms", GradientNorms},
      {"gradient_parts", PartsOfGradients},
      {"precision_inside", PrecisionInside},
      {"token_sums", SumsOverTokens},
      {"random_draws", RandomDraws},
      {"loss_unit", LossUnit},
      {"computation", Computation}};
  return readers;
}

}  // namespace

std::string RunFacts::ClassOf(const std::string& module) const {
  const auto found = classes.find(module);
  return found == classes.end() ? "" : found->second;
}

bool RunFacts::IsRoot(const std::string& module) const {
  return roots.empty() ? module.empty() : roots.contains(module);
}

int64_t RunFacts::ReductionIndex(const std::string& fqn) const {
  const auto found = reduction_index.find(fqn);
  return found == reduction_index.end() ? -1 : found->second;
}

const GradientNorm* RunFacts::FindGradientNorm(int rank, int iteration,
                                               const std::string& fqn) const {
  const auto found = gradient_norms.find({rank, iteration, fqn});
  return found == gradient_norms.end() ? nullptr : &found->second;
}

const GradientParts* RunFacts::FindGradientParts(int rank, int iteration,
                                                 const std::string& fqn) const {
  const auto found = gradient_parts.find({rank, iteration, fqn});
  return found == gradient_parts.end() ? nullptr : &found->second;
}

RunFacts ReadRunFacts(const Trace& trace) {
  RunFacts out;
  const Json manifest = ParseJson(trace.manifest_json());
  if (manifest.is_object()) out.selection = TextAt(manifest, "select");
  out.collectives = ReadCollectives(trace);
  out.reduction_hook = ReadReductionHook(trace, out.collectives);
  out.state_changes = ReadStateChanges(trace);
  out.attributes = ReadAttributes(trace);
  out.early_reductions = ReadEarlyReductions(trace);
  out.cleared_gradients = ReadClearedGradients(trace);
  out.absent_gradients = ReadGradientsNotFound(trace);
  out.fused_modules = ReadFusedModules(trace);
  out.source_lines = SourceLines::Read(trace);
  return out;
}

bool MakesRunFact(const std::string& kind) { return Readers().contains(kind); }

void AddRunFact(const ParsedNote& note, RunFacts* facts) {
  const auto reader = Readers().find(note.kind);
  if (reader != Readers().end()) reader->second(note.rank, note.json, facts);
}

}  // namespace ttrace
