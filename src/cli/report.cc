// `ttrace report RESULT`: a result in, what other programs read of it out.

#include <filesystem>
#include <memory>
#include <string>

#include "src/cli/command.h"
#include "src/cli/export_options.h"
#include "src/report/result_file.h"

namespace ttrace {
namespace {

constexpr const char* kReportFooter = R"(
RESULT is a result.json, or the folder that `check`, `diff` or `merge` wrote it
to. A FILE of - is the standard output. `check` and `diff` take the same
options. Files of the source below --source-root are named relative to it in
SARIF: services show them beside the source. JUnit, SARIF and Markdown say of
an inconclusive result that it is one. --perfetto reads the candidate's trace,
where the result says it lies or beside the result; docs/exports.md says what
it shows.
Exit codes: 0 written, whatever the verdict; 2 could not.

Examples:
  ttrace report report/ --junit report/junit.xml --sarif report/ttrace.sarif
  ttrace report report/ --perfetto report/candidate.pftrace
  ttrace report report/result.json --markdown - >> "$GITHUB_STEP_SUMMARY")";

struct ReportArguments {
  std::string result;
  std::string trace;
  ExportOptions exports;
};

// Where the candidate's trace is: as was said when it was checked, or, of a
// report that was moved, beside its result.
std::string CandidateTrace(const ReportArguments& options,
                           const std::string& folder) {
  if (!options.trace.empty()) return options.trace;
  std::error_code ignored;
  if (folder.empty() || std::filesystem::exists(folder, ignored)) {
    return folder;
  }
  std::filesystem::path result = options.result;
  if (!std::filesystem::is_directory(result, ignored)) {
    result = result.parent_path();
  }
  const auto beside =
      result / std::filesystem::path(folder + "/").parent_path().filename();
  return std::filesystem::exists(beside, ignored) ? beside.string() : folder;
}

int WriteReports(const ReportArguments& options) {
  if (!options.exports.any()) {
    return Complain(
        "report: nothing to write: give --junit, --sarif, --markdown or "
        "--perfetto");
  }
  const Status possible = CheckExports(options.exports, "");
  if (!possible.ok()) return Complain(possible.error());
  const auto result = ReadResult(options.result);
  if (!result.ok()) return Complain(result.error());
  const Status written =
      WriteExports(options.exports, *result,
                   CandidateTrace(options, result->candidate.folder));
  return written.ok() ? 0 : Complain(written.error());
}

}  // namespace

void AddReport(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "report",
      "Write a result for other programs: JUnit, SARIF, Markdown, Perfetto.");
  const auto options = std::make_shared<ReportArguments>();
  command->add_option("RESULT", options->result, "result.json or its folder")
      ->required();
  AddExportOptions(command, &options->exports);
  command
      ->add_option("--trace", options->trace,
                   "the candidate's trace, for --perfetto, if it is elsewhere")
      ->type_name("DIR");
  command->footer(kReportFooter);
  command->callback([action, options] {
    *action = [options] { return WriteReports(*options); };
  });
}

}  // namespace ttrace
