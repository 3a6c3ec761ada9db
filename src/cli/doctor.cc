// `ttrace doctor`: what will work in this environment, and what not.

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/interrupt.h"
#include "src/cli/live_line.h"
#include "src/cli/recording.h"
#include "src/cli/terminal.h"
#include "src/report/page.h"
#include "src/run/doctor/machine.h"
#include "src/run/doctor/python.h"
#include "src/run/duration.h"

namespace ttrace {
namespace {

constexpr const char* kDoctorFooter = R"(
The worst comes first. "broken" will not work, "doubtful" may not or was never
tried, "well" will. The Python that is looked at is the one that ttrace is
installed in, unless --python names that of your ranks.
Exit codes: 0 nothing is broken, 1 something will not work, 2 could not look.

Examples:
  ttrace doctor --quick
  ttrace doctor --quick --folder . --json)";

struct DoctorArguments {
  std::string folder = ".";
  std::string python;
  // The import of torch from a slow network file system takes that long.
  std::string timeout = "2m";
  bool quick = false;
  bool json = false;
};

std::string_view WordFor(Health health) {
  switch (health) {
    case Health::kBroken:
      return "broken";
    case Health::kDoubtful:
      return "doubtful";
    case Health::kWell:
      break;
  }
  return "well";
}

std::string RenderHealth(const std::vector<HealthFinding>& found,
                         const TerminalOptions& terminal) {
  constexpr std::array<Tone, 3> kTones = {Tone::kBad, Tone::kDoubtful,
                                          Tone::kGood};
  Page page(terminal.width, terminal.color);
  page.SpaceSections(false);
  std::string_view section;
  for (const HealthFinding& one : found) {
    const std::string_view word = WordFor(one.health);
    if (word != section) {
      page.Section(word, kTones[static_cast<size_t>(one.health)]);
      section = word;
    }
    page.Text(one.subject + ": " + one.text, Tone::kPlain, 2);
    if (!one.next.empty()) page.Text("- next: " + one.next, Tone::kStrong, 2);
  }
  return page.Take();
}

std::string HealthJson(const std::vector<HealthFinding>& found, int exit_code) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const HealthFinding& one : found) {
    checks.push_back({{"health", WordFor(one.health)},
                      {"subject", one.subject},
                      {"text", one.text},
                      {"next", one.next}});
  }
  const nlohmann::ordered_json json = {
      {"schema", 1}, {"exit_code", exit_code}, {"checks", std::move(checks)}};
  return json.dump(2, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

// A folder that goes away. Empty if it cannot be made.
class Scratch {
 public:
  Scratch() {
    std::error_code unknown;
    std::string name =
        (std::filesystem::temp_directory_path(unknown) / "ttrace-doctor-XXXXXX")
            .string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int Doctor(const DoctorArguments& options) {
  RecordOptions own;
  const Status ready = UseOwnEnvironment(&own);
  if (!ready.ok()) return Complain(ready.error());
  const auto timeout = ParseDuration(options.timeout);
  if (!timeout.ok()) return Complain(timeout.error().WithContext("--timeout"));
  const Scratch scratch;
  if (scratch.path().empty()) {
    return Complain(
        "doctor: no folder for temporary files can be written: set TMPDIR to "
        "one that can");
  }
  const std::string interpreter = Variable("TTRACE_PYTHON");
  PythonToLookAt python;
  python.interpreter = options.python.empty() ? interpreter : options.python;
  if (python.interpreter.empty()) python.interpreter = "python3";
  python.package_folder =
      std::filesystem::path(own.hook_folder).parent_path().string();
  python.environment = own.environment;
  python.scratch = scratch.path();
  python.timeout_seconds = *timeout;

  HealthList list;
  LookAtFolder(options.folder, &list);
  LookAtSharedMemory("/dev/shm", &list);
  LookAtMemoryAndCores(&list);
  LookAtLimits(&list);
  LookAtPorts(&list);
  LookAtPath(Variable("PATH"),
             std::filesystem::path(interpreter).parent_path().string(), &list);
  {
    const InterruptGuard guard;
    python.interrupt = guard.flag();
    const std::string limit =
        *timeout > 0 ? "at most " + FormatSeconds(*timeout) : "without a limit";
    LiveLine line;
    line.Show({"asking " + Printable(python.interpreter), limit});
    const Result<bool> torch = LookAtPython(python, &list);
    if (!torch.ok()) {
      return Complain(torch.error().WithContext("doctor: --python"));
    }
    if (*torch && !options.quick && !guard.interrupted()) {
      line.Show({"recording two ranks", limit});
      TryToRecord(python, &list);
    }
    if (guard.interrupted()) {
      Complain("interrupted");
      return guard.exit_code();
    }
  }
  std::vector<HealthFinding> found = list.found();
  std::stable_sort(found.begin(), found.end(),
                   [](const HealthFinding& a, const HealthFinding& b) {
                     return a.health < b.health;
                   });
  const int exit_code = found.front().health == Health::kBroken ? 1 : 0;
  const std::string text = options.json
                               ? HealthJson(found, exit_code)
                               : RenderHealth(found, StandardOutputOptions());
  std::fputs(text.c_str(), stdout);
  return exit_code;
}

}  // namespace

void AddDoctor(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Say what will work in this environment, and what not.");
  const auto options = std::make_shared<DoctorArguments>();
  command
      ->add_option("--folder", options->folder,
                   "where traces are to be written")
      ->type_name("DIR")
      ->capture_default_str();
  command
      ->add_option("--python", options->python,
                   "the interpreter of your ranks, if it is another one")
      ->type_name("PYTHON");
  command
      ->add_option("--timeout", options->timeout,
                   "end what hangs: the interpreter's answer, and the run of "
                   "two ranks, each after so long; 0: never")
      ->capture_default_str()
      ->type_name("DURATION");
  command->add_flag("--quick", options->quick,
                    "do not record a run of two ranks (some seconds)");
  command->add_flag("--json", options->json, "for programs");
  command->footer(kDoctorFooter);
  command->callback(
      [action, options] { *action = [options] { return Doctor(*options); }; });
}

}  // namespace ttrace
