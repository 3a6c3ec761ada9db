// Any bytes, taken for a result.json: `ttrace inspect` prints them or says that
// it cannot, and what it prints is printable. The same of the HTML report, in
// which nothing of them is an element.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "fuzz/small_runs.h"
#include "fuzz/trace_files.h"
#include "src/base/check.h"
#include "src/check/check.h"
#include "src/cli/inspect.h"
#include "src/report/html/html.h"
#include "src/report/render.h"
#include "src/report/result_file.h"

namespace ttrace {
namespace {

const std::string& Path() {
  static const std::string path =
      "/dev/shm/ttrace-fuzz-result-" + std::to_string(::getpid());
  return path;
}

// A real result, for a corpus to start from.
void WriteSeed(const std::string& folder) {
  const std::string work = Path() + ".run";
  SmallReference().Write(work + "/reference");
  SmallWrongCandidate().Write(work + "/candidate");
  CheckOptions options;
  options.reference = work + "/reference";
  options.candidate = work + "/candidate";
  const auto result = RunCheck(options);
  TTRACE_CHECK(result.ok(), result.error().message());
  std::filesystem::create_directories(folder);
  WriteText(folder + "/result", RenderJson(*result));
  std::filesystem::remove_all(work);
}

size_t CountOf(const std::string& what, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

void CheckPage(const std::string& json) {
  const auto result = ParseResult(json);
  if (!result.ok()) return;
  const std::string page = RenderHtml(*result);
  TTRACE_CHECK(CountOf("<script", page) == 2 && CountOf("</script", page) == 2,
               "names from a file are text");
  for (const char c : page) {
    const bool control = (c >= 0 && c < 0x20 && c != '\n') || c == 0x7F;
    TTRACE_CHECK(!control, "names from a file are escaped");
  }
}

}  // namespace
}  // namespace ttrace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* seeds = std::getenv("TTRACE_FUZZ_SEEDS");
  if (seeds != nullptr) ttrace::WriteSeed(seeds);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  ttrace::CheckPage(bytes);
  ttrace::WriteText(ttrace::Path(), bytes);
  const auto text = ttrace::DescribeResult(ttrace::Path(), {});
  if (!text.ok()) return 0;
  for (const char c : *text) {
    const bool control = (c >= 0 && c < 0x20 && c != '\n') || c == 0x7F;
    TTRACE_CHECK(!control, "names from a file are escaped");
  }
  return 0;
}
