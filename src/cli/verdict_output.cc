#include "src/cli/verdict_output.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/live_line.h"
#include "src/cli/progress.h"
#include "src/cli/terminal.h"
#include "src/report/html/html.h"
#include "src/report/render.h"
#include "src/report/result_file.h"
#include "src/run/free_space.h"
#include "src/run/record_command.h"
#include "src/trace/file.h"
#include "src/trace/segments/segment_pool.h"

namespace ttrace {
namespace {

// result.json first: whatever else cannot be written can be made of it.
Status WriteReports(const CheckResult& result, const std::string& json,
                    const VerdictOutput& output) {
  const auto write = [&](const char* name, const std::string& text) -> Status {
    if (output.folder.empty()) return Done{};
    return WriteFileAtomically(
        (std::filesystem::path(output.folder) / name).string(), text);
  };
  TerminalOptions plain;
  plain.verbose = true;
  TTRACE_RETURN_IF_ERROR(write("result.json", json));
  TTRACE_RETURN_IF_ERROR(write("report.txt", RenderTerminal(result, plain)));
  // By way of the file, as `ttrace report` makes them later.
  TTRACE_ASSIGN_OR_RETURN(const ResultFile file, ParseResult(json));
  TTRACE_RETURN_IF_ERROR(write("index.html", RenderHtml(file)));
  return WriteExports(output.exports, file, file.candidate.folder);
}

int Write(const CheckResult& result, const VerdictOutput& output) {
  if (output.folder.empty() && !output.exports.any()) {
    return ExitCode(result.verdict);
  }
  const Status written = WriteReports(result, RenderJson(result), output);
  if (!written.ok()) {
    return Complain(written.error().message() + FullDiskWords(output.folder));
  }
  return ExitCode(result.verdict);
}

int PrintAndWrite(const CheckResult& result, const VerdictOutput& output) {
  TerminalOptions terminal = StandardOutputOptions();
  terminal.verbose = output.verbose;
  std::fputs(RenderTerminal(result, terminal).c_str(), stdout);
  std::fflush(stdout);
  return Write(result, output);
}

CheckResult Undecided(const std::string& reason) {
  CheckResult result;
  result.verdict = Verdict::kInconclusive;
  result.reason = reason.substr(0, reason.find('\n'));
  return result;
}

}  // namespace

int CheckAndReport(CheckOptions options, const VerdictOutput& output) {
  std::optional<CheckWatch> watch(std::in_place,
                                  ProgressTask{.side = "", .phase = "compare"});
  options.progress = watch->measured();
  // All commands have ended: nobody inherits it.
  RaiseOpenFileLimit();
  const Result<CheckResult> result = RunCheck(options);
  watch.reset();
  if (!result.ok()) {
    Complain(result.error());
    return Write(Undecided(result.error().message()), output);
  }
  // On a terminal the report says it.
  if (isatty(STDERR_FILENO) == 0) {
    SayAside("compared " + FormatCount(result->coverage.compared) +
             " tensors in " + FormatSeconds(result->seconds));
  }
  return Report(result, output);
}

void WriteUndecided(const std::string& reason, const VerdictOutput& output) {
  Write(Undecided(reason), output);
}

int ReportUndecided(const std::string& reason, const VerdictOutput& output) {
  return PrintAndWrite(Undecided(reason), output);
}

int Report(const Result<CheckResult>& result, const VerdictOutput& output) {
  if (!result.ok()) return Complain(result.error());
  if (output.broke.empty() || result->verdict == Verdict::kDiverged) {
    return PrintAndWrite(*result, output);
  }
  CheckResult open = *result;
  // Why something is missing stands before what is.
  open.reason = open.verdict == Verdict::kInconclusive
                    ? output.broke + "; " + open.reason
                    : output.broke;
  open.verdict = Verdict::kInconclusive;
  return PrintAndWrite(open, output);
}

}  // namespace ttrace
