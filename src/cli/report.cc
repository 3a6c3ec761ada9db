// `ttrace report RESULT`: a result in, a page or what other programs read of it
// out.

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/export_options.h"
#include "src/report/html/html.h"
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
it shows. HTML of several results shows them side by side, the other formats
are of one.
Exit codes: 0 written, whatever the verdict; 2 could not.

Examples:
  ttrace report report/ --junit report/junit.xml --sarif report/ttrace.sarif
  ttrace report report/ --perfetto report/candidate.pftrace
  ttrace report report/result.json --markdown - >> "$GITHUB_STEP_SUMMARY"
  ttrace report report/ --html report.html
  ttrace report report/ again/ --html both.html)";

struct ReportArguments {
  std::vector<std::string> results;
  std::string html;
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
  std::filesystem::path result = options.results.front();
  if (!std::filesystem::is_directory(result, ignored)) {
    result = result.parent_path();
  }
  const auto beside =
      result / std::filesystem::path(folder + "/").parent_path().filename();
  return std::filesystem::exists(beside, ignored) ? beside.string() : folder;
}

// Several results, side by side on one page.
int WriteComparison(const ReportArguments& options) {
  if (options.exports.any()) {
    return Complain(
        "report: JUnit, SARIF, Markdown and Perfetto are of one result: run "
        "the command once for each, or give --html alone");
  }
  std::vector<std::pair<std::string, ResultFile>> results;
  for (const std::string& path : options.results) {
    auto result = ReadResult(path);
    if (!result.ok()) return Complain(result.error());
    results.emplace_back(path, *std::move(result));
  }
  const Status written =
      WriteExport(options.html, RenderHtmlComparison(results));
  return written.ok() ? 0 : Complain(written.error());
}

int WriteReports(const ReportArguments& options) {
  if (!options.exports.any() && options.html.empty()) {
    return Complain(
        "report: nothing to write: give --html, --junit, --sarif, --markdown "
        "or --perfetto");
  }
  if (std::filesystem::path(options.html).filename() == "result.json") {
    return Complain("report: --html: '" + Printable(options.html) +
                    "' has the name of a result: choose another");
  }
  if (options.results.size() > 1) return WriteComparison(options);
  const Status possible = CheckExports(options.exports, "");
  if (!possible.ok()) return Complain(possible.error());
  const std::string& path = options.results.front();
  const auto result = ReadResult(path);
  if (!result.ok()) return Complain(result.error());
  Status written = Done{};
  if (!options.html.empty()) {
    written = WriteExport(options.html, RenderHtml(*result));
  }
  if (written.ok()) {
    written = WriteExports(options.exports, *result,
                           CandidateTrace(options, result->candidate.folder));
  }
  return written.ok() ? 0 : Complain(written.error());
}

}  // namespace

void AddReport(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "report", "Write a result as HTML, or for other programs.");
  const auto options = std::make_shared<ReportArguments>();
  command
      ->add_option("RESULT", options->results,
                   "result.json or its folder; several with --html")
      ->required();
  command->add_option("--html", options->html,
                      "one page to open in a browser, of one result or of "
                      "several side by side");
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
