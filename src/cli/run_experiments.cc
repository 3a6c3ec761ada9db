// `ttrace run`: experiments of a project's file, one after the other.
//
// Each is a process of its own: whatever ends it does not end the others, and
// nothing of its environment, its working folder or its memory reaches them.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/experiment.h"
#include "src/cli/experiment_options.h"
#include "src/cli/interrupt.h"
#include "src/cli/live_line.h"
#include "src/cli/look_at_experiments.h"
#include "src/cli/progress.h"
#include "src/cli/reference_state.h"
#include "src/cli/summary_table.h"
#include "src/cli/terminal.h"
#include "src/cli/working_folder.h"

namespace ttrace {
namespace {

constexpr const char* kRunCommandFooter = R"(
A reference is recorded once and reused while nothing of what it depends on has
changed: docs/project_file.md says what is looked at. Results lie in
.ttrace/NAME/CANDIDATE beside the project's file. An experiment that fails does
not stop the others.
Exit codes: 1 if one diverged, else 2 if one could not be decided, else 0;
128 + N if signal N ended it.

Examples:
  ttrace run --list
  ttrace run tp)";

struct RunArguments {
  std::vector<std::string> names;
  bool all = false;
  bool list = false;
  bool names_only = false;
  bool verbose = false;
  DiffArguments typed;  // of it: project_file, fresh, progress
};

// In the child. What is ignored (nohup) stays so; handlers are the parent's.
void BeAProcessOfItsOwn(bool show_report) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction old {};
    sigaction(number, nullptr, &old);
    if (old.sa_handler != SIG_IGN) signal(number, SIG_DFL);
  }
  // The terminal's signals come from the parent, once. Its live line may be
  // written from the background.
  setpgid(0, 0);
  sigset_t output;
  sigemptyset(&output);
  sigaddset(&output, SIGTTOU);
  sigprocmask(SIG_BLOCK, &output, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (show_report) return;
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
}

// Waits for it and hands on what interrupts us. The exit code, or 128 + signal.
int Await(pid_t child, const InterruptGuard& guard) {
  int handed_on = 0;
  int status = 0;
  while (true) {
    const pid_t got = waitpid(child, &status, WNOHANG);
    if (got == child) break;
    if (got < 0 && errno != EINTR) return kCouldNotDecide;
    const int count = guard.flag()->count.load();
    for (; handed_on < count; ++handed_on) {
      kill(child, guard.flag()->signal.load());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

SummaryRow RunOne(const Project& project, const ChosenExperiment& chosen,
                  const RunArguments& options, const std::string& outdated,
                  const InterruptGuard& guard) {
  const auto start = std::chrono::steady_clock::now();
  const std::string folder = FoldersOf(project, chosen).candidate;
  const auto written = [&] {
    std::error_code missing;
    return std::filesystem::last_write_time(
        std::filesystem::path(folder) / "result.json", missing);
  };
  const auto before = written();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    SummaryRow row;
    row.name = chosen.name();
    row.verdict = "not run";
    row.reason = "no process is left for it";
    return row;
  }
  if (child == 0) {
    BeAProcessOfItsOwn(options.verbose);
    SetExperimentShown(chosen.name());
    GivenOptions given;
    if (options.verbose) given["verbose"] = {"true", true, {}};
    DiffArguments typed = options.typed;
    typed.outdated_reference = outdated;
    const int code = RunExperiment(project, chosen, typed, given);
    std::fflush(nullptr);
    _exit(code);
  }
  setpgid(child, child);
  const int code = Await(child, guard);
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  // What an earlier run found is not what this one does.
  SummaryRow row = SummaryOf(chosen.name(), written() == before ? "" : folder,
                             code, time.count());
  if (guard.interrupted() && row.exit_code == 2) row.verdict = "interrupted";
  if (code > 128 && !guard.interrupted()) {
    row.reason = "its ttrace died of signal " + std::to_string(code - 128);
  }
  return row;
}

int RunAll(const Project& project, const std::vector<ChosenExperiment>& chosen,
           const RunArguments& options) {
  std::vector<SummaryRow> rows;
  int interrupt_code = 0;
  {
    const InterruptGuard guard;
    // With --fresh, what lies there now serves no candidate of this call.
    std::map<std::string, std::string> outdated;  // run id by experiment
    if (options.typed.fresh) {
      for (const ChosenExperiment& one : chosen) {
        outdated.try_emplace(one.experiment->name,
                             ReferenceOf(project, one).run_id());
      }
    }
    for (const ChosenExperiment& one : chosen) {
      if (guard.interrupted()) {
        SummaryRow row;
        row.name = one.name();
        row.verdict = "not run";
        rows.push_back(std::move(row));
        continue;
      }
      SayAside(one.name() + " (" + std::to_string(rows.size() + 1) + " of " +
               std::to_string(chosen.size()) + ")");
      rows.push_back(
          RunOne(project, one, options, outdated[one.experiment->name], guard));
      const SummaryRow& row = rows.back();
      SayAside(one.name() + ": " + row.verdict + " after " +
               DurationWords(row.seconds));
    }
    if (guard.interrupted()) interrupt_code = guard.exit_code();
  }
  const auto width = static_cast<size_t>(StandardOutputOptions().width);
  std::fputs(SummaryTable(rows, width).c_str(), stdout);
  const std::string report =
      Seen((std::filesystem::path(project.output) / "EXPERIMENT/report.txt")
               .string(),
           WorkingFolder());
  if (std::any_of(rows.begin(), rows.end(), [](const SummaryRow& row) {
        return row.exit_code != 0 && row.has_result;
      })) {
    std::printf("reports: %s\n", Printable(report).c_str());
  }
  std::fflush(stdout);
  return interrupt_code != 0 ? interrupt_code : WorstExitCode(rows);
}

int List(const Project& project) {
  for (const ProjectExperiment& experiment : project.experiments) {
    std::printf("%s%s%s\n", experiment.name.c_str(),
                experiment.description.empty() ? "" : ": ",
                Printable(experiment.description).c_str());
    const ChosenExperiment first = {&experiment, &experiment.candidates[0]};
    const auto arguments = ArgumentsOf(project, first, {});
    if (!arguments.ok()) return Complain(arguments.error());
    const auto state = StateOfReference(project, first, *arguments);
    if (!state.ok()) return Complain(state.error());
    std::printf("  reference: %s%s\n",
                state->reusable || state->words == "not recorded"
                    ? ""
                    : "to be recorded again: ",
                state->words.c_str());
    const std::string unknown = UnknownScriptWords(project, experiment);
    if (!unknown.empty()) std::printf("  %s\n", unknown.c_str());
    for (const ProjectCandidate& candidate : experiment.candidates) {
      const ChosenExperiment one = {&experiment, &candidate};
      const SummaryRow row =
          SummaryOf(one.name(), FoldersOf(project, one).candidate, 0, 0);
      std::printf(
          "  %s: %s%s%s\n", one.name().c_str(),
          row.verdict == "no result" ? "not compared yet" : row.verdict.c_str(),
          row.first_place.empty() ? "" : ", first at ",
          row.first_place.c_str());
    }
  }
  return 0;
}

int RunNamed(const RunArguments& options) {
  UseProgressOptions(options.typed.progress);
  const auto project = OpenProject(options.typed.project_file);
  if (options.names_only) {
    // For completion, where nobody reads a mistake.
    if (!project.ok()) return kCouldNotDecide;
    for (const ProjectExperiment& experiment : project->experiments) {
      std::printf("%s\n", experiment.name.c_str());
      for (const ProjectCandidate& candidate : experiment.candidates) {
        std::printf("%s/%s\n", experiment.name.c_str(), candidate.name.c_str());
      }
    }
    return 0;
  }
  if (!project.ok()) return Complain(project.error());
  if (options.list) return List(*project);
  if (options.all != options.names.empty()) {
    return Complain(options.all
                        ? "give either --all or names of experiments"
                        : "which experiments? Give names, or --all; `ttrace "
                          "run --list` shows what there is");
  }
  std::vector<std::string> names = options.names;
  if (options.all) {
    for (const auto& experiment : project->experiments) {
      names.push_back(experiment.name);
    }
  }
  std::vector<ChosenExperiment> chosen;
  for (const std::string& name : names) {
    const auto found = FindExperiments(*project, name);
    if (!found.ok()) return Complain(found.error());
    for (const ChosenExperiment& one : *found) {
      const bool twice = std::any_of(chosen.begin(), chosen.end(),
                                     [&](const ChosenExperiment& other) {
                                       return other.candidate == one.candidate;
                                     });
      if (!twice) chosen.push_back(one);
    }
  }
  if (!LookAtExperiments(*project, chosen, options.typed.fresh)) {
    return kCouldNotDecide;
  }
  return RunAll(*project, chosen, options);
}

}  // namespace

void AddRun(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "run", "Run experiments of the project's file (ttrace.toml).");
  const auto options = std::make_shared<RunArguments>();
  command
      ->add_option("NAME", options->names,
                   "experiments, or one candidate of one: NAME/CANDIDATE")
      ->type_name("EXPERIMENT...");
  command->add_flag("--all", options->all, "all experiments of the file");
  command->add_flag("--list", options->list,
                    "show the experiments, their references and results");
  command->add_flag("--names", options->names_only,
                    "their names alone, a line each");
  command->add_option("--project", options->typed.project_file,
                      "the project's file; ttrace.toml by default");
  command->add_flag("--fresh", options->typed.fresh,
                    "record references again, whether or not anything they "
                    "depend on has changed");
  command->add_flag("-v,--verbose", options->verbose,
                    "show each report, and in it every tensor that is out of "
                    "bounds");
  AddProgressOptions(command, &options->typed.progress);
  command->footer(kRunCommandFooter);
  command->callback([action, options] {
    *action = [options] { return RunNamed(*options); };
  });
}

}  // namespace ttrace
