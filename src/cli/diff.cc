// `ttrace diff`: two commands in, a verdict out.

#include "src/cli/diff.h"

#include <filesystem>
#include <memory>
#include <string>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/interrupt.h"
#include "src/cli/live_line.h"
#include "src/cli/plan.h"
#include "src/cli/progress.h"
#include "src/cli/recording.h"
#include "src/cli/reference_state.h"
#include "src/cli/run_side.h"
#include "src/cli/saved_reference.h"
#include "src/cli/verdict_output.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/leg_names.h"
#include "src/run/command/missing_program.h"
#include "src/run/free_space.h"
#include "src/run/output_folder.h"
#include "src/run/record_command.h"

namespace ttrace {
namespace {

// What both sides' launches have in common.
Result<RecordOptions> CommonOptions(const DiffArguments& options) {
  RecordOptions run;
  TTRACE_ASSIGN_OR_RETURN(run.iterations, ParseIterations(options.iterations));
  TTRACE_RETURN_IF_ERROR(SetWatch(options.watch, "", &run));
  TTRACE_RETURN_IF_ERROR(UseOwnEnvironment(&run));
  run.select = options.select;
  run.seed = options.seed;
  run.graft_what = options.graft;
  run.keep_values = options.keep_values;
  run.launch_per_leg = options.launch_per_leg;
  run.dropout_off = true;  // masks of two topologies cannot agree
  run.end_when_captured = !options.run_to_end;
  run.end_leftovers = true;
  return run;
}

RecordOptions ForSide(const RecordOptions& common, const DiffArguments& options,
                      const std::string& side, const std::string& command,
                      std::vector<Leg> legs) {
  RecordOptions run = common;
  run.argv = {"/bin/sh", "-c", command};
  const bool reference = side == "reference";
  run.folder = reference && !options.reference_folder.empty()
                   ? options.reference_folder + ".new"
                   : (std::filesystem::path(options.folder) / side).string();
  for (const auto& [name, value] : reference ? options.reference_environment
                                             : options.candidate_environment) {
    SetVariable(name, value, &run.environment);
  }
  run.log_file = run.folder + ".log";
  run.legs = std::move(legs);
  run.notice = [side](const std::string& text) {
    Complain(side + ": " + text);
  };
  return run;
}

void PrintFirstLine(const DiffArguments& options) {
  std::string what = "ttrace: diff ";
  if (options.graft != "none") {
    what += "tries to run the candidate with the reference's " +
            std::string(options.graft == "weights,data" ? "weights and data"
                                                        : options.graft) +
            " (what it cannot replace is in the report)";
    if (!options.run_to_end) what += ", and ";
  }
  if (!options.run_to_end) {
    what += "ends each command once it is captured";
  }
  if (options.graft != "none" || !options.run_to_end) Say(what);
}

// A saved reference costs nothing, and the candidate is the first launch. A
// command that has to run to its end is not started for a look.
bool LooksFirst(const DiffArguments& options) {
  return options.reference_trace.empty() && !options.run_to_end &&
         !options.no_first_step;
}

// How the next try does without running the reference again, where NEXT does
// not say it.
void PrintNextTry(const DiffArguments& options, const std::string& reference) {
  // An experiment's reference is found again by itself.
  if (!options.reference_folder.empty()) return;
  if (!options.reference_trace.empty() || options.keep != "traces") return;
  Say("the reference is kept; another candidate: ttrace diff -o NEW "
      "--reference-trace " +
      Printable(reference) + " --candidate CMD");
}

void PrintPlan(const DiffArguments& options, const IterationRange& iterations,
               const std::vector<Leg>& reference_legs,
               const std::vector<Leg>& candidate_legs) {
  if (LooksFirst(options)) {
    Say("plan: first the candidate's own first step alone, one launch, to see "
        "whether\n"
        "plan: it can be judged (--no-first-step: without)");
  }
  if (options.reference_trace.empty()) {
    Say("plan: reference: " + StepsWords(iterations, reference_legs));
  }
  Say("plan: candidate: " + StepsWords(iterations, candidate_legs) +
      "\n"
      "plan: bytes and memory are said before the first rerun; " +
      (options.launch_per_leg
           ? "each rerun is a launch\nplan: of its own (--launch-per-leg)"
           : "where an iteration cannot\nplan: be run again in its process, "
             "each rerun is a launch of its own"));
}

// Before anything is launched: a typing error in the one command is not to be
// found after a run of the other.
Status CheckCommands(const DiffArguments& options) {
  std::error_code gone;
  const std::string folder = std::filesystem::current_path(gone).string();
  const auto check = [&](const char* side, const std::string& command,
                         const Variables& environment) -> Status {
    const Status there =
        CheckProgramIsThere(command, folder, PathIn({&environment}));
    if (there.ok()) return Done{};
    return there.error().WithContext(side);
  };
  TTRACE_RETURN_IF_ERROR(check("reference", options.reference_command,
                               options.reference_environment));
  return check("candidate", options.candidate_command,
               options.candidate_environment);
}

int DiscardTraces(const DiffArguments& options, int exit_code) {
  if (options.keep == "traces") return exit_code;
  for (const char* side : {"reference", "candidate"}) {
    const auto trace = std::filesystem::path(options.folder) / side;
    if (!std::filesystem::exists(trace)) continue;
    const Status removed = RemoveTrace(trace.string());
    if (!removed.ok()) Complain(removed.error());
  }
  return exit_code;
}

}  // namespace

int Diff(const DiffArguments& asked) {
  DiffArguments options = asked;
  UseProgressOptions(options.progress);
  if (options.folder.empty() || options.candidate_command.empty()) {
    return Complain(
        "give -o DIR, --reference COMMAND (or --reference-trace DIR) and "
        "--candidate COMMAND, or the name of an experiment of ttrace.toml");
  }
  if (options.reference_command.empty() == options.reference_trace.empty()) {
    return Complain("give either --reference COMMAND or --reference-trace DIR");
  }
  if (const Status checked = CheckDiffArguments(options); !checked.ok()) {
    return Complain(checked.error());
  }
  if (const Status seen = LookAtSavedReference(&options); !seen.ok()) {
    return Complain(seen.error());
  }
  if (options.iterations.empty()) options.iterations = "0:2";
  const auto reference_legs = ExpandLegs(options.reference_legs);
  if (!reference_legs.ok()) return Complain(reference_legs.error());
  auto candidate_legs = ExpandLegs(options.candidate_legs);
  if (!candidate_legs.ok()) return Complain(candidate_legs.error());
  if (options.graft != "weights,data") {
    // Modules would be given the candidate's own values: no test of anything.
    std::erase_if(*candidate_legs,
                  [](const Leg& leg) { return leg.is_isolated(); });
  }
  const Result<RecordOptions> common = CommonOptions(options);
  if (!common.ok()) return Complain(common.error());
  const Status possible = CheckExports(options.exports, options.folder);
  if (!possible.ok()) return Complain(possible.error());
  // A typing error leaves nothing, but in the place of what an earlier diff
  // left.
  const Status there = CheckCommands(options);
  if (!there.ok() && !std::filesystem::exists(options.folder)) {
    return Complain(there.error());
  }
  VerdictOutput output = {options.folder, options.verbose, options.exports, ""};
  const auto folder =
      PrepareFolder(options.folder, FolderKind::kReport, options.force,
                    ExportsIn(options.exports, options.folder));
  if (!folder.ok()) return Complain(folder.error());
  if (!there.ok()) {
    WriteUndecided(there.error().message(), output);
    return Complain(there.error());
  }
  if (!options.reference_folder.empty() && options.reference_trace.empty()) {
    const Status free =
        CheckReplaceable(options.reference_folder, FolderKind::kTrace, true);
    if (!free.ok()) return Complain(free.error());
  }
  WarnOfOrphans();
  PrintFirstLine(options);
  PrintPlan(options, common->iterations, *reference_legs, *candidate_legs);

  CheckOptions check;
  check.reference = options.reference_trace;
  // A saved one may have more.
  if (!options.reference_trace.empty()) check.iterations = common->iterations;
  SideOutcome side;
  SideEnd& end = side.end;
  {
    const InterruptGuard guard;
    if (LooksFirst(options)) {
      RecordOptions run = FirstStepOf(
          ForSide(*common, options, "candidate", options.candidate_command, {}),
          (std::filesystem::path(options.folder) / "first_step").string());
      run.interrupt = guard.flag();
      run.notice = [](const std::string& text) {
        Complain("first step: " + text);
      };
      side = RunFirstStep(run);
    }
    if (end == SideEnd::kGood && check.reference.empty()) {
      RecordOptions run = ForSide(*common, options, "reference",
                                  options.reference_command, *reference_legs);
      run.as_reference = true;
      run.interrupt = guard.flag();
      check.reference = run.folder;
      side =
          RunSide("reference", run, !options.reference_folder.empty(), guard);
      if (end == SideEnd::kFailed) {
        Complain("the reference has to be a run that works");
        return ReportUndecided(side.problem, output);
      }
      if (end == SideEnd::kGood && options.reference_recorded) {
        const Status noted = options.reference_recorded(run.folder);
        if (!noted.ok()) return Complain(noted.error());
        check.reference = options.reference_folder;
      }
    }
    if (end == SideEnd::kGood) {
      RecordOptions run = ForSide(*common, options, "candidate",
                                  options.candidate_command, *candidate_legs);
      run.interrupt = guard.flag();
      if (options.graft != "none") run.graft = check.reference;
      check.candidate = run.folder;
      side = RunSide("candidate", run, false, guard);
    }
    if (end == SideEnd::kInterrupted) {
      Complain("interrupted; all processes of the run are ended");
      WriteUndecided("interrupted", output);
      return guard.exit_code();
    }
  }
  const bool broke = end == SideEnd::kUnusable || end == SideEnd::kFailed;
  if (broke && LooksFirst(options) && options.graft != "none" &&
      !check.candidate.empty()) {
    Complain("candidate: with weights and data of its own, its first step ran");
  }
  if (end == SideEnd::kUnusable || check.candidate.empty()) {
    // Unless it is the reference that ended badly.
    if (!check.candidate.empty()) PrintNextTry(options, check.reference);
    return ReportUndecided(side.problem, output);
  }

  check.reference_legs = FindLegFolders(check.reference);
  check.candidate_legs = FindLegFolders(check.candidate);
  Say("");
  // A run that broke down is not equal to one that did not.
  output.broke = side.problem;
  const int verdict = CheckAndReport(check, output);
  if (verdict == 0) PrintNextTry(options, check.reference);
  return DiscardTraces(options, verdict);
}

}  // namespace ttrace
