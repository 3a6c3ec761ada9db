#include "src/cli/ray_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/cli/command.h"
#include "src/cli/working_folder.h"

namespace ttrace {
namespace {

using Words = std::vector<std::string>;

// What each part is measured by, but for --part and --out-part.
Words CheckWords(const CheckOptions& check) {
  Words words = {"check"};
  if (!check.reference.empty()) words.push_back(check.reference);
  words.push_back(check.candidate);
  if (check.iterations) {
    words.push_back("--iterations");
    words.push_back(
        fmt::format("{}:{}", check.iterations->begin, check.iterations->end));
  }
  if (check.legs) {
    words.push_back("--legs");
    words.push_back(fmt::format("{}", fmt::join(NamesOf(*check.legs), ",")));
  }
  if (check.bitwise) words.push_back("--bitwise");
  words.push_back("--risk");
  words.push_back(fmt::format("{}", check.risk));
  return words;
}

// What the result is made by, but for the parts.
Words MergeWords(const RayCheck& on_ray) {
  Words words = {"merge"};
  if (!on_ray.output.empty()) {
    words.push_back("--output");
    words.push_back(on_ray.output);
  }
  if (on_ray.verbose) words.push_back("--verbose");
  return words;
}

}  // namespace

int CheckOnRay(const RayCheck& on_ray) {
  // Set by the console script: the interpreter that has this package.
  const char* python = std::getenv("TTRACE_PYTHON");
  if (python == nullptr) {
    return Complain(
        "--engine ray needs the Python package: start ttrace by its console "
        "script (pip install 'torch-ttrace[ray]')");
  }
  Words folders;
  if (!on_ray.check.reference.empty()) {
    folders.push_back(on_ray.check.reference);
  }
  folders.push_back(on_ray.check.candidate);
  const nlohmann::json job = {{"parts", on_ray.parts},
                              {"address", on_ray.address},
                              {"threads", on_ray.check.threads},
                              {"working_folder", WorkingFolder()},
                              {"folders", folders},
                              {"check", CheckWords(on_ray.check)},
                              {"merge", MergeWords(on_ray)}};
  std::string text;
  try {
    text = job.dump();
  } catch (const nlohmann::json::exception&) {
    return Complain("--engine ray takes names in UTF-8 only");
  }
  std::fflush(stdout);
  execlp(python, python, "-m", "ttrace.engine.on_ray", text.c_str(), nullptr);
  return Complain(std::string(python) + ": " + std::strerror(errno));
}

}  // namespace ttrace
