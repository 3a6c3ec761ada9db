// `ttrace diff`: its arguments, and what runs them. `ttrace run` runs it as
// well, for each experiment of a project's file.

#ifndef TTRACE_SRC_CLI_DIFF_H_
#define TTRACE_SRC_CLI_DIFF_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "src/cli/export_options.h"
#include "src/cli/progress.h"
#include "src/cli/recording.h"
#include "src/experiment/leg_names.h"
#include "src/run/record_command.h"
#include "ttrace/status.h"

namespace ttrace {

struct DiffArguments {
  std::string experiment;    // NAME/CANDIDATE of the project's file; or
  std::string project_file;  // empty: ttrace.toml of the working folder
  bool fresh = false;        // record the experiment's reference again

  std::string folder;
  std::string reference_command;
  std::string reference_trace;
  std::string candidate_command;
  std::string iterations;  // empty: the saved reference's, or 0:2
  std::string reference_legs{kReferenceLegs};
  std::string candidate_legs{kCandidateLegs};
  std::string graft = "weights,data";
  std::string keep = "traces";
  std::string select;
  int64_t seed = 0;
  bool keep_values = false;
  bool launch_per_leg = false;
  bool run_to_end = false;
  bool no_first_step = false;
  bool force = false;
  bool verbose = false;
  WatchOptions watch;
  ProgressOptions progress;
  ExportOptions exports;

  // Of an experiment, whose reference outlives the folder of one candidate.
  // Empty: in `folder`. Else it is recorded beside that, and what is there
  // stays until reference_recorded.
  std::string reference_folder;
  // Called with the trace once it is whole, to put it into reference_folder.
  std::function<Status(const std::string&)> reference_recorded;
  // Run id of one that is not to be used again (--fresh); empty: none.
  std::string outdated_reference;
  // What the sides' commands see besides our own environment.
  std::map<std::string, std::string> reference_environment;
  std::map<std::string, std::string> candidate_environment;
};

void AddDiffOptions(CLI::App* command, DiffArguments* options);

// Whether texts are what they have to be: ranges, legs, durations. Fails with
// kInvalidArgument.
Status CheckDiffArguments(const DiffArguments& options);

// Runs both sides, or the candidate alone, and compares them. Returns the exit
// code.
int Diff(const DiffArguments& options);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_DIFF_H_
