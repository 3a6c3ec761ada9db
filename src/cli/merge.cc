// `ttrace merge PART...`: the parts of a check in, its result out.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/check/merge_parts.h"
#include "src/cli/command.h"
#include "src/cli/verdict_output.h"
#include "src/cli/working_folder.h"
#include "src/run/output_folder.h"
#include "src/trace/segments/segment_pool.h"

namespace ttrace {
namespace {

constexpr const char* kMergeFooter = R"(
The result is that of `ttrace check` in one process, but for the time it took.
The traces have to be where the parts found them: faults are placed and
explained by them. A part that is missing, cut, of another check or there twice
is named, with the command that measures it again.
Exit codes: 0 within bounds, 1 diverged, 2 could not decide.

Examples:
  ttrace merge parts/
  ttrace merge parts/part-00001-of-00002.ttpart parts/part-00002-of-00002.ttpart -o merged)";

struct MergeArguments {
  std::vector<std::string> parts;
  std::string output;
  bool force = false;
  bool verbose = false;
  int threads = 0;
  ExportOptions exports;
};

int Merge(const MergeArguments& options) {
  const Status possible = CheckExports(options.exports, options.output);
  if (!possible.ok()) return Complain(possible.error());
  std::optional<FolderLock> folder;
  if (!options.output.empty()) {
    auto prepared =
        PrepareFolder(options.output, FolderKind::kReport, options.force);
    if (!prepared.ok()) return Complain(prepared.error());
    folder = *std::move(prepared);
  }
  RaiseOpenFileLimit();
  MergeOptions merge;
  merge.parts = options.parts;
  merge.working_folder = WorkingFolder();
  merge.threads = options.threads;
  return Report(MergeParts(merge),
                {options.output, options.verbose, options.exports});
}

}  // namespace

void AddMerge(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "merge", "Make the result of a check whose parts were measured apart.");
  const auto options = std::make_shared<MergeArguments>();
  command
      ->add_option("PART", options->parts,
                   "what `ttrace check --part` wrote, or folders of it")
      ->required();
  command->add_option("-o,--output", options->output,
                      "folder for result.json, report.txt and "
                      "index.html, a page for a browser");
  command->add_flag("--force", options->force,
                    "replace what ttrace wrote to the folder before");
  AddExportOptions(command, &options->exports);
  command->add_flag("-v,--verbose", options->verbose,
                    "list every tensor that is out of bounds");
  command
      ->add_option("--threads", options->threads, "as many as cores by default")
      ->check(CLI::Range(0, 1024));
  command->footer(kMergeFooter);
  command->callback(
      [action, options] { *action = [options] { return Merge(*options); }; });
}

}  // namespace ttrace
