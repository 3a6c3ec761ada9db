// `ttrace check [REF] CAND`: compare and judge traces that are there.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/cli/command.h"
#include "src/cli/verdict_output.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/leg_names.h"
#include "src/judge/constants.h"
#include "src/run/output_folder.h"

namespace ttrace {
namespace {

constexpr const char* kFooter = R"(
Without a reference, what needs none is checked: copies that must be equal,
non-finite values, the gradient norm, the optimizer's steps.
Exit codes: 0 within bounds, 1 diverged, 2 could not decide.

Examples:
  ttrace check reference candidate
  ttrace check reference candidate -o verdict
  ttrace check reference candidate --iterations 1:2
  ttrace check candidate)";

struct Options {
  std::vector<std::string> traces;
  std::string output;
  std::string iterations;
  bool force = false;
  bool verbose = false;
  int threads = 0;
  double risk = kRunRisk;
};

int Check(const Options& options) {
  CheckOptions check;
  check.candidate = options.traces.back();
  check.candidate_legs = FindLegFolders(check.candidate);
  if (options.traces.size() == 2) {
    check.reference = options.traces.front();
    check.reference_legs = FindLegFolders(check.reference);
  }
  check.threads = options.threads;
  check.risk = options.risk;
  if (!options.iterations.empty()) {
    const auto range = ParseIterations(options.iterations);
    if (!range.ok()) return Complain(range.error());
    check.iterations = *range;
  }
  std::optional<FolderLock> folder;
  if (!options.output.empty()) {
    auto prepared =
        PrepareFolder(options.output, FolderKind::kReport, options.force);
    if (!prepared.ok()) return Complain(prepared.error());
    folder = *std::move(prepared);
  }
  return CheckAndReport(check, options.output, options.verbose);
}

}  // namespace

void AddCheck(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "check", "Compare a trace with a reference, judge it and explain.");
  const auto options = std::make_shared<Options>();
  command
      ->add_option("TRACE", options->traces,
                   "reference and candidate, or the candidate alone")
      ->required()
      ->expected(1, 2)
      ->type_name("[REF] CAND");
  command->add_option("--iterations", options->iterations,
                      "judge only these optimizer steps, FIRST:END");
  command
      ->add_option("--risk", options->risk,
                   "how often a clean run may be flagged by chance")
      ->check(CLI::Range(1e-12, 0.5))
      ->capture_default_str();
  command->add_option("-o,--output", options->output,
                      "folder for result.json and report.txt");
  command->add_flag("--force", options->force,
                    "replace what ttrace wrote to the folder before");
  command->add_flag("-v,--verbose", options->verbose,
                    "list every tensor that is out of bounds");
  command
      ->add_option("--threads", options->threads, "as many as cores by default")
      ->check(CLI::Range(0, 1024));
  command->footer(kFooter);
  command->callback(
      [action, options] { *action = [options] { return Check(*options); }; });
}

}  // namespace ttrace
