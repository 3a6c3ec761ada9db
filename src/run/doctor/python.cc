#include "src/run/doctor/python.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/base/format.h"
#include "src/run/doctor/machine.h"
#include "src/run/doctor/tried_versions.h"
#include "src/run/last_error.h"
#include "src/trace/file.h"
#include "src/trace/note_json.h"
#include "ttrace/version.h"

namespace ttrace {
namespace {

constexpr size_t kLongestAnswer = 1 << 20;
constexpr int kOldestMinor = 10;  // Python 3.10: pyproject.toml
constexpr std::string_view kDistribution = "torch-ttrace";
// The name on the package index that belongs to somebody else.
constexpr std::string_view kOtherDistribution = "ttrace";

// `environment` with the hook in front of PYTHONPATH, as a rank has it.
std::vector<std::string> WithHook(const PythonToLookAt& python) {
  constexpr std::string_view kVariable = "PYTHONPATH=";
  std::vector<std::string> out;
  std::string path = python.package_folder + "/hook";
  for (const std::string& entry : python.environment) {
    if (!entry.starts_with(kVariable)) {
      out.push_back(entry);
    } else if (entry.size() > kVariable.size()) {
      path += ":" + entry.substr(kVariable.size());
    }
  }
  out.push_back(std::string(kVariable) + path);
  return out;
}

Result<nlohmann::json> AskPython(const PythonToLookAt& python) {
  const std::string answer = python.scratch + "/python.json";
  LaunchOptions run;
  run.argv = {python.interpreter, python.package_folder + "/doctor/look.py",
              answer, std::string(kDistribution),
              std::string(kOtherDistribution)};
  for (const TriedPackage& package : TriedPackages()) {
    run.argv.emplace_back(package.name);
  }
  run.environment = WithHook(python);
  run.log_file = python.scratch + "/python.log";
  run.timeout_seconds = python.timeout_seconds;
  run.interrupt = python.interrupt;
  TTRACE_ASSIGN_OR_RETURN(const LaunchOutcome ended, Launch(run));
  const auto text = ReadWholeFile(answer, kLongestAnswer);
  if (text.ok()) {
    nlohmann::json said = ParseJson(*text);
    if (said.is_object()) return said;
  }
  if (ended.ending == LaunchOutcome::Ending::kTimedOut) {
    return Error(ErrorCode::kIo,
                 "'" + Printable(python.interpreter) +
                     "' did not answer within " +
                     FormatSeconds(python.timeout_seconds) +
                     ", the time that --timeout gives it: it hangs as it "
                     "starts or imports torch; try it yourself: " +
                     Printable(python.interpreter) +
                     " -X importtime -c "
                     "'import torch'");
  }
  const std::string error = LastError(ended.output_tail);
  return Error(ErrorCode::kIo, "'" + Printable(python.interpreter) +
                                   "' did not answer: it " + Describe(ended) +
                                   (error.empty() ? "" : ": " + error));
}

// The second number of "3.11.7"; -1 of what is no 3.
int MinorOf(const std::string& version) {
  if (!version.starts_with("3.")) return -1;
  return std::atoi(version.c_str() + 2);
}

void LookAtVersion(const nlohmann::json& said, HealthList* out) {
  const std::string version = Printable(TextAt(said, "python"));
  const std::string where = Printable(TextAt(said, "executable"));
  if (MinorOf(version) < kOldestMinor) {
    out->Broken("python", version + " (" + where + "): capture needs 3.10",
                "use a newer Python for the ranks: --python PYTHON");
  } else {
    out->Well("python", version + " (" + where + ")");
  }
}

std::string PackageVersion(const nlohmann::json& said, std::string_view name) {
  const auto packages = said.find("packages");
  if (packages == said.end() || !packages->is_object()) return "";
  return Printable(TextAt(*packages, std::string(name).c_str()));
}

void LookAtPackage(const nlohmann::json& said, HealthList* out) {
  const std::string installed = PackageVersion(said, kDistribution);
  if (installed.empty()) {
    out->Doubtful("ttrace",
                  "this Python has no package of it: ranks load capture from "
                  "the one that runs this, `ttrace.attach` they cannot import",
                  "pip install torch-ttrace there, if a script calls it");
  } else if (installed != kVersion) {
    out->Broken("ttrace",
                "the package is " + installed + ", and the native module " +
                    std::string(kVersion),
                "install it again: pip install --force-reinstall torch-ttrace");
  } else {
    out->Well("ttrace", installed + ", package and native module");
  }
  if (!PackageVersion(said, kOtherDistribution).empty()) {
    out->Broken("ttrace",
                "the package 'ttrace' of the package index is installed, which "
                "is another project's and overwrites this one's files",
                "pip uninstall ttrace, then install torch-ttrace again");
  }
}

void LookAtHook(const nlohmann::json& said, const PythonToLookAt& python,
                HealthList* out) {
  const std::string loaded = TextAt(said, "sitecustomize");
  std::error_code ignored;
  if (std::filesystem::equivalent(
          loaded, python.package_folder + "/hook/sitecustomize.py", ignored)) {
    out->Well("hook", "Python loads it when it starts");
  } else if (loaded.empty()) {
    out->Broken("hook",
                "Python does not load it when it starts: it does not look at "
                "PYTHONPATH (python -I, -E or -S), or something clears that",
                "start ranks by an interpreter that keeps PYTHONPATH");
  } else {
    out->Broken("hook", "another sitecustomize hides it: " + Printable(loaded),
                "take that away, or start ranks without it: something puts it "
                "in front of PYTHONPATH or imports it earlier (a .pth file)");
  }
}

bool LookAtTorch(const nlohmann::json& said, HealthList* out) {
  const auto torch = said.find("torch");
  const std::string version =
      torch == said.end() ? "" : Printable(TextAt(*torch, "version"));
  const std::string error =
      torch == said.end() ? "" : Printable(TextAt(*torch, "error"));
  if (!error.empty()) {
    out->Broken("torch", "it cannot be used: " + error, "install it again");
    return false;
  }
  if (version.empty()) {
    out->Broken("torch", "this Python has none: nothing can be recorded there",
                "pip install torch, or name the Python of your ranks: --python "
                "PYTHON");
    return false;
  }
  const TriedPackage& tried = TriedPackages().front();
  if (WasTried(tried, version)) {
    out->Well("torch", version);
  } else {
    out->Doubtful(
        "torch",
        version + " was not tried (" + VersionWords(tried) +
            " was): what is missing in it is named by a note",
        "record two steps, and look at the notes of `ttrace inspect`");
  }
  const auto gloo = torch->find("gloo");
  if (gloo == torch->end() || *gloo != true) {
    out->Doubtful("torch", "it has no gloo: runs of several ranks on CPUs fail",
                  "");
    return false;
  }
  return true;
}

void LookAtGpus(const nlohmann::json& said, HealthList* out) {
  const std::string driver = Printable(GpuDriver());
  const auto torch = said.find("torch");
  const auto devices = torch == said.end() ? std::vector<std::string>()
                                           : TextsAt(*torch, "devices");
  if (!devices.empty()) {
    out->Well("gpus", std::to_string(devices.size()) + " x " +
                          Printable(devices.front()) +
                          (driver.empty() ? "" : "; " + driver));
  } else if (!driver.empty()) {
    const bool cuda = torch != said.end() && !TextAt(*torch, "cuda").empty();
    out->Doubtful("gpus",
                  "there is a driver (" + driver + "), and torch " +
                      (cuda ? "finds no device" : "is built without CUDA"),
                  cuda ? "look at CUDA_VISIBLE_DEVICES, and whether the driver "
                         "is as new as torch needs"
                       : "install a torch with CUDA, to record on GPUs");
  } else {
    out->Well("gpus", "none: ranks run on CPUs");
  }
}

void LookAtFrameworks(const nlohmann::json& said, HealthList* out) {
  const auto& packages = TriedPackages();
  for (size_t i = 1; i < packages.size(); ++i) {
    const TriedPackage& package = packages[i];
    const std::string installed = PackageVersion(said, package.name);
    if (installed.empty()) continue;
    const std::string name(package.name);
    if (!package.refused.empty()) {
      out->Doubtful(name,
                    installed + ": " + std::string(package.refused) +
                        "; a run that uses it is inconclusive",
                    "compare a run without it");
    } else if (WasTried(package, installed)) {
      out->Well(name, installed);
    } else {
      const std::string words = VersionWords(package);
      out->Doubtful(name,
                    installed + " was not tried" +
                        (words.empty() ? "" : " (tried: " + words + ")"),
                    "record two steps, and look at the notes of `ttrace "
                    "inspect`");
    }
  }
}

}  // namespace

Result<bool> LookAtPython(const PythonToLookAt& python, HealthList* out) {
  TTRACE_ASSIGN_OR_RETURN(const nlohmann::json said, AskPython(python));
  LookAtVersion(said, out);
  LookAtPackage(said, out);
  LookAtHook(said, python, out);
  const bool torch = LookAtTorch(said, out);
  LookAtFrameworks(said, out);
  LookAtGpus(said, out);
  return torch;
}

}  // namespace ttrace
