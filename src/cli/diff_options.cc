// What `ttrace diff` can be told.

#include "src/cli/command.h"
#include "src/cli/diff.h"
#include "src/cli/experiment.h"
#include "src/cli/experiment_options.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/selection.h"

namespace ttrace {
namespace {

constexpr const char* kDiffFooter = R"(
DIR gets reference/, candidate/, the commands' output in reference.log and
candidate.log, result.json, report.txt, and index.html to open in a browser.
A FILE of - is the standard output, after the report. --timeout holds for each
launch.
The candidate's own first step is run first, alone: what cannot be judged ends
the diff there, before the reference is run (first_step/ is kept then). Not
with --reference-trace, whose candidate is the first launch anyway.
An EXPERIMENT of ttrace.toml has its commands and options there; options given
here hold instead of those (docs/project_file.md).
Exit codes: 0 within bounds, 1 diverged, 2 could not decide.

Examples:
  ttrace diff -o report --reference "python train.py" --candidate "python train.py --tp 2"
  ttrace diff tp/tp2
  ttrace diff -o again --timeout 30m --reference-trace report/reference --candidate "python train.py --tp 2" --junit again/junit.xml --markdown "$GITHUB_STEP_SUMMARY")";

}  // namespace

void AddDiffOptions(CLI::App* command, DiffArguments* options) {
  command
      ->add_option("EXPERIMENT", options->experiment,
                   "of the project's file, instead of commands")
      ->type_name("[NAME[/CANDIDATE]]");
  command->add_option("--project", options->project_file,
                      "the project's file; ttrace.toml by default");
  command->add_flag("--fresh", options->fresh,
                    "record the experiment's reference again, whether or not "
                    "anything it depends on has changed");
  command->add_option("-o,--output", options->folder,
                      "folder for all results; of an experiment by default "
                      ".ttrace/NAME/CANDIDATE");
  command->add_option("--reference", options->reference_command,
                      "command of the trusted run, as one argument");
  command->add_option("--reference-trace", options->reference_trace,
                      "saved trace to use instead (record --as-reference)");
  command->add_option("--candidate", options->candidate_command,
                      "command of the run under test, as one argument");
  command->add_option(
      "--iterations", options->iterations,
      "optimizer steps to compare, FIRST:END; 0:2 by default, or "
      "those of --reference-trace");
  command
      ->add_option("--graft", options->graft,
                   "what the candidate takes from the reference: "
                   "weights,data or weights or data or none")
      ->capture_default_str();
  command
      ->add_option("--legs", options->candidate_legs, "reruns of the candidate")
      ->capture_default_str();
  command
      ->add_option("--reference-legs", options->reference_legs,
                   "reruns of the reference")
      ->capture_default_str();
  command->add_option("--select", options->select,
                      "compare only these: KEY=PATTERN;... with fqn, role, "
                      "micro_batch, rank (what other ranks hold is then "
                      "missing from sums and shards)");
  command->add_flag("--keep-values", options->keep_values,
                    "write all values of all reruns, as record does with it");
  command->add_flag("--launch-per-leg", options->launch_per_leg,
                    "make every rerun a launch of the command of its own");
  command->add_option("--seed", options->seed, "of the noise")
      ->capture_default_str();
  command
      ->add_option("--keep", options->keep,
                   "traces: everything; report: delete the traces at the end")
      ->capture_default_str()
      ->check(CLI::IsMember({"traces", "report"}));
  AddExportOptions(command, &options->exports);
  AddWatchOptions(command, &options->watch);
  AddProgressOptions(command, &options->progress);
  command->add_flag("--run-to-end", options->run_to_end,
                    "let the commands finish");
  command->add_flag("--no-first-step", options->no_first_step,
                    "do not run the candidate's own first step before the "
                    "reference to see whether it can be judged");
  command->add_flag("--force", options->force,
                    "replace what ttrace wrote to the folder before");
  command->add_flag("-v,--verbose", options->verbose,
                    "list every tensor that is out of bounds");
}

Status CheckDiffArguments(const DiffArguments& options) {
  const auto in = [](const char* option, const auto& parsed) -> Status {
    if (parsed.ok()) return Done{};
    return parsed.error().WithContext(option);
  };
  if (!options.iterations.empty()) {
    TTRACE_RETURN_IF_ERROR(
        in("--iterations", ParseIterations(options.iterations)));
  }
  TTRACE_RETURN_IF_ERROR(
      in("--reference-legs", ExpandLegs(options.reference_legs)));
  TTRACE_RETURN_IF_ERROR(in("--legs", ExpandLegs(options.candidate_legs)));
  TTRACE_RETURN_IF_ERROR(in("--graft", CheckGraft(options.graft)));
  TTRACE_RETURN_IF_ERROR(in("--select", CheckSelection(options.select)));
  RecordOptions unused;
  return SetWatch(options.watch, "", &unused);
}

void AddDiff(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "diff", "Run two commands and say whether, where and why they differ.");
  const auto options = std::make_shared<DiffArguments>();
  AddDiffOptions(command, options.get());
  command->footer(kDiffFooter);
  command->callback([action, options, command] {
    *action = [options, given = GivenOf(*command)] {
      return options->experiment.empty() ? Diff(*options)
                                         : DiffExperiment(*options, given);
    };
  });
}

}  // namespace ttrace
