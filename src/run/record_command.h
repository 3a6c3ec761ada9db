// One run of a command with capture in each of its ranks: the trace folder, the
// environment by which the ranks know what to do, the launch, and what it came
// to. The contract with python/ttrace/capture/settings.py is in this pair of
// files alone.

#ifndef TTRACE_SRC_RUN_RECORD_COMMAND_H_
#define TTRACE_SRC_RUN_RECORD_COMMAND_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/experiment/iteration_range.h"
#include "src/run/capture_cost.h"
#include "src/run/capture_progress.h"
#include "src/run/capture_summary.h"
#include "src/run/launch.h"
#include "ttrace/leg.h"
#include "ttrace/status.h"

namespace ttrace {

struct RecordOptions {
  std::vector<std::string> argv;
  std::string folder;  // exists and is empty
  bool as_reference = false;
  IterationRange iterations;
  std::vector<Leg> legs;  // besides "real", expanded
  Leg leg = kReal;        // not "real": the launch is this leg
  std::string graft;      // trace folder; empty: none
  std::string graft_what = "weights,data";
  std::string select;
  std::string mode = "full";    // sketch, bitwise: summaries instead of values
  bool keep_values = false;     // also of reruns that only measure something
  bool launch_per_leg = false;  // no leg in the process of another
  bool dropout_off = false;     // capture hands on what dropout is given
  int64_t seed = 0;
  std::string log_file;
  // Also once every rank's capture has ended and one refused to go on.
  bool end_when_captured = false;
  bool end_leftovers = false;  // see LaunchOptions
  double timeout_seconds = 0;  // see LaunchOptions
  // After so long without a record, and then after twice that and so on,
  // `notice` is called with where each rank is. 0: never.
  double stall_seconds = 0;
  std::function<void(const std::string&)> notice;
  // Called a few times a second, and once more when the command has ended.
  std::function<void(const CaptureProgress&)> progress;
  // Called once, when all ranks have said what their reruns will take. Never if
  // there are none.
  std::function<void(const CaptureCost&)> cost;

  std::string hook_folder;  // put in front of PYTHONPATH
  std::vector<std::string>
      environment;  // what the command would see without us
  const InterruptFlag* interrupt = nullptr;
};

struct RecordOutcome {
  LaunchOutcome launch;
  CaptureSummary capture;
  // Where each rank was in the end, if the command was ended for its time.
  std::string last_records;
};

// The same command for its own first step alone, into another folder: what it
// uses that is not supported shows there, as does a crash, and it costs one
// launch that is ended as soon as the step is over. Nothing is taken from a
// reference, there is no rerun, and of large tensors no value is kept.
RecordOptions FirstStepOf(RecordOptions run, const std::string& folder);

// Runs the command and summarises its trace. Fails as Launch does, or if the
// folder cannot be written. A command that fails or captures nothing is no
// Error: see the outcome.
Result<RecordOutcome> RecordCommand(const RecordOptions& options);

// How the command ended, its own last error first: "exited with code 1: rank 0:
// TypeError: ...". In one line.
std::string DescribeEnd(const RecordOutcome& outcome);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_RECORD_COMMAND_H_
