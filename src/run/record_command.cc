#include "src/run/record_command.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "src/base/format.h"
#include "src/experiment/graft_source.h"
#include "src/experiment/leg_names.h"
#include "src/experiment/side.h"
#include "src/run/capture_watch.h"
#include "src/run/free_space.h"
#include "src/run/last_error.h"
#include "src/run/stall_notice.h"
#include "src/trace/note_json.h"
#include "src/trace/writer.h"
#include "ttrace/version.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

std::string NewRunId() {
  std::random_device random;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (int i = 0; i < 16; ++i) id += kDigits[random() % kDigits.size()];
  return id;
}

std::string UtcNow() {
  const std::time_t now =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const size_t length =
      std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text.data(), length);
}

std::string Join(const std::vector<std::string>& words, char separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

std::string Iterations(const RecordOptions& options) {
  return std::to_string(options.iterations.begin) + ":" +
         std::to_string(options.iterations.end);
}

// Empty: it cannot be read, which capture will find out.
std::string ValuesOf(const std::string& reference) {
  const Result<Side> side = Side::Open(reference, FindLegFolders(reference));
  return side.ok() ? DigestOfGraftSource(side->traces()) : "";
}

std::string Manifest(const RecordOptions& options, const std::string& run_id) {
  nlohmann::ordered_json manifest;
  manifest["ttrace"] = kVersion;
  manifest["run_id"] = run_id;
  manifest["created"] = UtcNow();
  manifest["command"] = options.argv;
  manifest["as_reference"] = options.as_reference;
  manifest["iterations"] = {options.iterations.begin, options.iterations.end};
  manifest["leg"] = options.leg.name();
  manifest["legs"] = NamesOf(options.legs);
  if (!options.graft.empty()) {
    manifest["graft"] = {{"reference", options.graft},
                         {"what", options.graft_what}};
    if (const std::string values = ValuesOf(options.graft); !values.empty()) {
      manifest["graft"]["values"] = values;
    }
  }
  if (!options.select.empty()) manifest["select"] = options.select;
  if (options.dropout_off) manifest["dropout"] = "off";
  manifest["seed"] = options.seed;
  // A command line is bytes, and JSON is UTF-8.
  return JsonText(manifest);
}

using Wish = LaunchOptions::Wish;
using Variable = std::pair<std::string, std::string>;

// What the ranks are told.
std::vector<Variable> Instructions(const RecordOptions& options,
                                   const std::string& run_id) {
  std::vector<Variable> variables = {
      {"TTRACE_OUT", fs::absolute(options.folder).string()},
      {"TTRACE_RUN_ID", run_id},
      {"TTRACE_LOCKS", "1"},  // see orphan_ranks.h
      {"TTRACE_ITERATIONS", Iterations(options)},
      {"TTRACE_LEGS", Join(NamesOf(options.legs), ',')},
      {"TTRACE_LEG", options.leg.name()},
      {"TTRACE_DROPOUT", options.dropout_off ? "off" : "keep"},
      {"TTRACE_SEED", std::to_string(options.seed)}};
  if (!options.graft.empty()) {
    variables.emplace_back("TTRACE_GRAFT",
                           fs::absolute(options.graft).string());
    variables.emplace_back("TTRACE_GRAFT_WHAT", options.graft_what);
  }
  if (options.mode != "full") {
    variables.emplace_back("TTRACE_MODE", options.mode);
  }
  if (options.keep_values) variables.emplace_back("TTRACE_KEEP_VALUES", "1");
  if (options.launch_per_leg) {
    variables.emplace_back("TTRACE_LAUNCH_PER_LEG", "1");
  }
  if (!options.select.empty()) {
    variables.emplace_back("TTRACE_SELECT", options.select);
  }
  return variables;
}

// The command's environment. Instructions of an outer run are dropped: a run
// inside a run must not write into the outer one's trace.
std::vector<std::string> Environment(const RecordOptions& options,
                                     const std::string& run_id) {
  constexpr std::string_view kPath = "PYTHONPATH=";
  std::vector<std::string> environment;
  std::string python_path = options.hook_folder;
  for (const std::string& entry : options.environment) {
    if (entry.starts_with(kPath)) {
      if (entry.size() > kPath.size()) {
        python_path.append(":").append(entry, kPath.size());
      }
    } else if (!entry.starts_with("TTRACE_")) {
      environment.push_back(entry);
    }
  }
  environment.push_back(std::string(kPath) + python_path);
  for (const auto& [name, value] : Instructions(options, run_id)) {
    environment.push_back(name + "=" + value);
  }
  return environment;
}

// Ranks that refuse something close their traces and train on.
class Refusal {
 public:
  explicit Refusal(const RecordOptions& options) : options_(options) {}

  // Whether a rank did, asked once all are closed: read once.
  bool Seen() {
    if (!seen_) {
      seen_ =
          !SummarizeCapture(options_.folder, options_.leg, options_.iterations)
               .unsupported.empty();
    }
    return *seen_;
  }

 private:
  const RecordOptions& options_;
  std::optional<bool> seen_;
};

}  // namespace

RecordOptions FirstStepOf(RecordOptions run, const std::string& folder) {
  run.folder = folder;
  run.log_file = folder + ".log";
  run.as_reference = false;
  run.iterations = {0, 1};
  run.legs.clear();
  run.graft.clear();
  run.mode = "bitwise";
  run.keep_values = false;
  run.launch_per_leg = false;
  run.end_when_captured = true;
  run.end_leftovers = true;
  return run;
}

Result<RecordOutcome> RecordCommand(const RecordOptions& options) {
  const std::string run_id = NewRunId();
  const Status created =
      CreateTraceFolder(options.folder, Manifest(options, run_id), false);
  if (!created.ok()) {
    return Error(created.error().code(),
                 created.error().message() + FullDiskWords(options.folder));
  }

  CaptureWatch watch(options.folder);
  StallNotice stall(options.stall_seconds);
  Refusal refusal(options);
  bool cost_said = false;
  CaptureMeter meter(options.folder, options.iterations, !options.legs.empty());
  const auto start = std::chrono::steady_clock::now();
  const auto show_progress = [&] {
    if (!options.progress) return;
    const std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    CaptureProgress progress = meter.Look(time.count());
    progress.world_size = watch.world_size();
    progress.ranks_closed = watch.ranks_closed();
    options.progress(progress);
  };
  LaunchOptions launch;
  launch.argv = options.argv;
  launch.environment = Environment(options, run_id);
  launch.run_id = run_id;
  launch.log_file = options.log_file;
  launch.end_leftovers = options.end_leftovers;
  launch.interrupt = options.interrupt;
  launch.timeout_seconds = options.timeout_seconds;
  launch.look = [&] {
    watch.Update();
    if (!cost_said && !options.legs.empty() && watch.world_size() > 0) {
      const CaptureCost cost =
          ReadCaptureCost(options.folder, options.iterations);
      cost_said = cost.ranks >= watch.world_size();
      if (cost_said) meter.SetCost(cost);
      if (cost_said && options.cost) options.cost(cost);
    }
    show_progress();
    const std::string idle = stall.Look(watch, CaptureWatch::Clock::now());
    if (!idle.empty() && options.notice) options.notice(idle);
    if (!options.end_when_captured || !watch.AllClosed()) return Wish::kGoOn;
    if (watch.AllComplete() || refusal.Seen()) return Wish::kEnd;
    // A rank whose process died is closed too: its launcher has to say so yet.
    return Wish::kEndSoon;
  };
  RecordOutcome outcome;
  TTRACE_ASSIGN_OR_RETURN(outcome.launch, Launch(launch));
  watch.Update();
  show_progress();
  outcome.capture =
      SummarizeCapture(options.folder, options.leg, options.iterations);
  if (outcome.launch.ending == LaunchOutcome::Ending::kTimedOut) {
    outcome.last_records = watch.LastRecords();
  }
  return outcome;
}

std::string DescribeEnd(const RecordOutcome& outcome) {
  const LaunchOutcome& launch = outcome.launch;
  if (launch.ending == LaunchOutcome::Ending::kFinished &&
      outcome.capture.iterations == 0) {
    return "was ended because its capture had stopped";  // it was refused
  }
  std::string text = Describe(launch);
  if (launch.ending == LaunchOutcome::Ending::kTimedOut) {
    if (outcome.last_records.empty()) {
      return text + "; no rank had begun to capture";
    }
    return text + "; last record of each rank: " + outcome.last_records;
  }
  if (launch.ending == LaunchOutcome::Ending::kInterrupted ||
      launch.ending == LaunchOutcome::Ending::kFinished ||
      (launch.ending == LaunchOutcome::Ending::kExited &&
       launch.exit_code == 0)) {
    return text;
  }
  std::string error = LastError(launch.output_tail);
  if ((error.empty() || IsConsequence(error)) &&
      !outcome.capture.errors.empty()) {
    error = outcome.capture.errors.front();
  }
  return error.empty() ? text : text + ": " + error;
}

}  // namespace ttrace
