// `ttrace report RESULT`: a result in, a page or what other programs read of it
// out.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/cli/command.h"
#include "src/report/exports/exports.h"
#include "src/report/html/html.h"
#include "src/report/result_file.h"
#include "src/run/record_command.h"
#include "src/trace/file.h"

namespace ttrace {
namespace {

constexpr const char* kReportFooter = R"(
RESULT is a result.json, or the folder that `check`, `diff` or `merge` wrote it
to. A FILE of - is the standard output. Files of the source below --source-root
are named relative to it in SARIF: services show them beside the source.
JUnit, SARIF and Markdown say of an inconclusive result that it is one.
HTML of several results shows them side by side, the other formats are of one.
Exit codes: 0 written, whatever the verdict; 2 could not.

Examples:
  ttrace report report/ --junit report/junit.xml --sarif report/ttrace.sarif
  ttrace report report/result.json --markdown - >> "$GITHUB_STEP_SUMMARY"
  ttrace report report/ --html report.html
  ttrace report report/ again/ --html both.html)";

struct ReportArguments {
  std::vector<std::string> results;
  std::string html;
  std::string junit;
  std::string sarif;
  std::string markdown;
  std::string source_root;
};

Status Write(const std::string& file, const std::string& text) {
  if (file != "-") return WriteFileAtomically(file, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0) {
    return Error(ErrorCode::kIo, "the standard output takes no more");
  }
  return Done{};
}

// What is made of one result.
void AddReports(const ReportArguments& options, const ResultFile& result,
                std::vector<std::pair<std::string, std::string>>* files) {
  if (!options.junit.empty()) {
    files->emplace_back(options.junit, RenderJunit(result));
  }
  if (!options.sarif.empty()) {
    std::error_code unknown;
    const std::string root =
        options.source_root.empty()
            ? std::filesystem::current_path(unknown).string()
            : std::filesystem::absolute(options.source_root, unknown)
                  .lexically_normal()
                  .string();
    files->emplace_back(options.sarif, RenderSarif(result, root));
  }
  if (!options.markdown.empty()) {
    files->emplace_back(options.markdown, RenderMarkdown(result));
  }
  if (!options.html.empty()) {
    files->emplace_back(options.html, RenderHtml(result));
  }
}

int WriteReports(const ReportArguments& options) {
  const bool of_one = !options.junit.empty() || !options.sarif.empty() ||
                      !options.markdown.empty();
  if (!of_one && options.html.empty()) {
    return Complain(
        "report: nothing to write: give --html, --junit, --sarif or "
        "--markdown");
  }
  if (of_one && options.results.size() > 1) {
    return Complain(
        "report: JUnit, SARIF and Markdown are of one result: run the command "
        "once for each, or give --html alone");
  }
  std::vector<std::pair<std::string, ResultFile>> results;
  for (const std::string& path : options.results) {
    auto result = ReadResult(path);
    if (!result.ok()) return Complain(result.error());
    results.emplace_back(path, *std::move(result));
  }
  std::vector<std::pair<std::string, std::string>> files;
  if (results.size() > 1) {
    files.emplace_back(options.html, RenderHtmlComparison(results));
  } else {
    AddReports(options, results.front().second, &files);
  }
  for (const auto& [file, text] : files) {
    const Status written = Write(file, text);
    if (!written.ok()) return Complain(written.error());
  }
  return 0;
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
  command->add_option("--junit", options->junit,
                      "JUnit XML: a case for each role and layer group");
  command->add_option("--sarif", options->sarif,
                      "SARIF 2.1.0: each culprit at its line of the source");
  command->add_option("--markdown", options->markdown,
                      "a summary for a pull request");
  command->add_option("--source-root", options->source_root,
                      "top folder of the source; the working folder by "
                      "default");
  command->footer(kReportFooter);
  command->callback([action, options] {
    *action = [options] { return WriteReports(*options); };
  });
}

}  // namespace ttrace
