#include "src/cli/saved_reference.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "src/base/format.h"
#include "src/cli/live_line.h"
#include "src/experiment/graft_source.h"
#include "src/experiment/iteration_range.h"
#include "src/trace/note_json.h"
#include "src/trace/reader.h"

namespace ttrace {
namespace {

// The iterations that a saved reference was recorded for; empty: not known.
std::string IterationsOf(const Trace& reference) {
  const nlohmann::json manifest = ParseJson(reference.manifest_json());
  const auto found = manifest.find("iterations");
  if (found == manifest.end() || !found->is_array() || found->size() != 2 ||
      !found->at(0).is_number_integer() || !found->at(1).is_number_integer()) {
    return "";
  }
  return fmt::format("{}:{}", found->at(0).get<int64_t>(),
                     found->at(1).get<int64_t>());
}

// What was not asked for is that of the reference; what it lacks cannot be
// compared.
Status ChooseIterations(const Trace& reference, DiffArguments* options) {
  const std::string recorded = IterationsOf(reference);
  const auto there = ParseIterations(recorded);
  if (!there.ok()) return Done{};
  if (options->iterations.empty()) options->iterations = recorded;
  const auto asked = ParseIterations(options->iterations);
  if (!asked.ok() ||
      (asked->begin >= there->begin && asked->end <= there->end)) {
    return Done{};
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--iterations {}: the reference {} was recorded for "
                           "{}; leave the option out, or record a reference "
                           "for these",
                           options->iterations, Printable(reference.folder()),
                           recorded));
}

}  // namespace

Status LookAtSavedReference(DiffArguments* options) {
  if (options->reference_trace.empty()) return Done{};
  const auto saved = Trace::Open(options->reference_trace);
  if (!saved.ok()) {
    const std::string inside = options->reference_trace + "/reference";
    const std::string hint =
        Trace::Open(inside).ok() ? ": the trace of this diff is " + inside : "";
    return saved.error().WithContext("--reference-trace" + hint);
  }
  TTRACE_RETURN_IF_ERROR(ChooseIterations(**saved, options));
  if (options->graft == "none" || HandsOutValues(**saved)) return Done{};
  options->graft = "none";
  Say("ttrace: the reference holds summaries: the candidate has to start from "
      "the same\n"
      "ttrace: weights and data by itself, and its modules are not isolated");
  return Done{};
}

}  // namespace ttrace
