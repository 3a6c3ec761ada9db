#include "src/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace ttrace {
namespace {

using std::chrono::milliseconds;

// As the keys of the objects mean now (docs/progress.md).
constexpr int kProgressVersion = 1;

std::string g_experiment;

}  // namespace

void AddProgressOptions(CLI::App* command, ProgressOptions* options) {
  command->add_flag("-q,--quiet", options->quiet,
                    "say nothing but the report and what is wrong");
  command->add_flag("--json-progress", options->json,
                    "how far it is as a JSON object a line on standard error, "
                    "for another program (docs/progress.md)");
}

void UseProgressOptions(const ProgressOptions& options) {
  SetAudience(options.json    ? Audience::kProgram
              : options.quiet ? Audience::kNobody
                              : Audience::kPerson);
}

void SetExperimentShown(const std::string& name) { g_experiment = name; }

std::string TaskWords(const ProgressTask& task) {
  std::string words = g_experiment.empty() ? "" : g_experiment + ": ";
  if (task.phase == "first_step") return words + "first step";
  if (task.phase == "compare") return words + "comparing";
  words += task.side;
  if (task.phase == "leg") {
    words += fmt::format(": launch {} of {}", task.launch, task.launches);
  }
  return words;
}

Progress::Progress(ProgressTask task)
    : task_(std::move(task)), who_(TaskWords(task_)) {
  switch (CurrentAudience()) {
    case Audience::kPerson:
      line_.emplace();
      period_ = line_->active() && !task_.shares_terminal
                    ? Clock::duration(milliseconds(100))
                    : std::chrono::minutes(1);
      break;
    case Audience::kProgram:
      period_ = std::chrono::seconds(1);
      break;
    case Audience::kNobody:
      // Signals end a check all the same.
      line_.emplace();
      period_ = Clock::duration::max();
  }
  last_ = Clock::now();
  Emit("begin", last_fields_);
}

Progress::~Progress() { Emit("end", last_fields_); }

bool Progress::IsDue() {
  const auto now = Clock::now();
  if (now - last_ < period_) return false;
  last_ = now;
  return true;
}

template <typename Any>
void Progress::ShowAny(const Any& progress) {
  if (CurrentAudience() == Audience::kProgram) {
    last_fields_ = ProgressFields(progress);
    if (IsDue()) Emit("progress", last_fields_);
    return;
  }
  if (!IsDue()) return;
  const std::vector<std::string> words = ProgressWords(who_, progress);
  if (line_->active() && !task_.shares_terminal) {
    line_->Show(words);
  } else {
    SayAside(FittedLine(words, std::string::npos));
  }
}

void Progress::Emit(const char* event,
                    const nlohmann::ordered_json& fields) const {
  if (CurrentAudience() != Audience::kProgram) return;
  nlohmann::ordered_json object;
  object["progress"] = kProgressVersion;
  object["event"] = event;
  if (!g_experiment.empty()) object["experiment"] = g_experiment;
  object["side"] = task_.side.empty() ? nlohmann::ordered_json(nullptr)
                                      : nlohmann::ordered_json(task_.side);
  object["phase"] = task_.phase;
  if (task_.launches > 0) {
    object["launch"] = task_.launch;
    object["launches"] = task_.launches;
  }
  object.update(fields);
  // One write, so that a line of a command that shares it cannot come between.
  const std::string line = object.dump() + "\n";
  std::fflush(stderr);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

CheckProgress Read(const MeasureProgress& measured, double seconds,
                   double measuring) {
  CheckProgress progress;
  progress.tensors = measured.tensors;
  progress.tensors_total = measured.tensors_total;
  progress.bytes = measured.bytes_read;
  progress.seconds = seconds;
  const auto all = static_cast<double>(measured.work_total);
  if (all <= 0) return progress;
  progress.done = std::min(static_cast<double>(measured.work) / all, 1.0);
  if (measuring > 0) {
    progress.bytes_per_second = static_cast<double>(progress.bytes) / measuring;
  }
  // Before, a few large tensors say nothing of all.
  constexpr double kKnownSeconds = 2;
  constexpr double kKnownShare = 0.03;
  if (measuring >= kKnownSeconds && progress.done >= kKnownShare) {
    progress.seconds_left = measuring * (1 - progress.done) / progress.done;
  }
  return progress;
}

CheckWatch::CheckWatch(ProgressTask task)
    : progress_(std::move(task)), thread_([this] { Watch(); }) {}

CheckWatch::~CheckWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void CheckWatch::Watch() {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::optional<Clock::time_point> known;
  const auto look = [&] {
    const auto now = Clock::now();
    if (!known && measured_.work_total > 0) known = now;
    const auto since = [&](Clock::time_point then) {
      return std::chrono::duration<double>(now - then).count();
    };
    progress_.Show(Read(measured_, since(start), known ? since(*known) : 0));
  };
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, milliseconds(200), [&] { return over_; })) {
    look();
  }
  look();
}

}  // namespace ttrace
