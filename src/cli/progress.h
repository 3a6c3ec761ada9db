// Shows how far a launch or a comparison is: a live line on a terminal, a line
// a minute in a log, an object a second for a program.
//
// Thread safety: one thread at a time.

#ifndef TTRACE_SRC_CLI_PROGRESS_H_
#define TTRACE_SRC_CLI_PROGRESS_H_

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "src/cli/live_line.h"
#include "src/cli/progress_words.h"
#include "src/measure/measure_progress.h"

namespace ttrace {

// --quiet and --json-progress.
struct ProgressOptions {
  bool quiet = false;
  bool json = false;
};
void AddProgressOptions(CLI::App* command, ProgressOptions* options);
// Tells the process whom it speaks to.
void UseProgressOptions(const ProgressOptions& options);

// In front of all that is shown from here on, and `experiment` for programs:
// which of several experiments it is of.
void SetExperimentShown(const std::string& name);

// What is done.
struct ProgressTask {
  std::string side;   // reference, candidate, record; empty: of no side
  std::string phase;  // first_step, record, leg, compare
  // Of phase `leg`: which launch of how many, from 1.
  int launch = 0;
  int launches = 0;
  // The command writes to our terminal, and a live line would be torn.
  bool shares_terminal = false;
};

// In front of what is said of a task: "reference".
std::string TaskWords(const ProgressTask& task);

class Progress {
 public:
  explicit Progress(ProgressTask task);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(const CaptureProgress& progress) { ShowAny(progress); }
  void Show(const CheckProgress& progress) { ShowAny(progress); }

 private:
  using Clock = std::chrono::steady_clock;

  template <typename Any>
  void ShowAny(const Any& progress);
  bool IsDue();
  void Emit(const char* event, const nlohmann::ordered_json& fields) const;

  ProgressTask task_;
  std::string who_;
  std::optional<LiveLine> line_;
  Clock::duration period_;
  Clock::time_point last_;
  nlohmann::ordered_json last_fields_ = nlohmann::ordered_json::object();
};

// Looks at a check while it runs, from a thread of its own.
class CheckWatch {
 public:
  explicit CheckWatch(ProgressTask task);
  ~CheckWatch();
  CheckWatch(const CheckWatch&) = delete;
  CheckWatch& operator=(const CheckWatch&) = delete;

  MeasureProgress* measured() { return &measured_; }

 private:
  void Watch();

  MeasureProgress measured_;
  Progress progress_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

// How far it is, `seconds` after it began and `measuring` after it was known
// what there is to do.
CheckProgress Read(const MeasureProgress& measured, double seconds,
                   double measuring);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_PROGRESS_H_
