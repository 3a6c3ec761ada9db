#include "src/cli/export_options.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/experiment/leg_names.h"
#include "src/report/exports/exports.h"
#include "src/run/free_space.h"
#include "src/trace/file.h"
#include "src/trace/reader.h"

namespace ttrace {
namespace {

constexpr const char* kStandardOutput = "-";

// A device or a pipe is written to, a link followed; what is there is replaced
// otherwise.
Status WriteThrough(const std::string& file, const std::string& text) {
  std::error_code none;
  const std::filesystem::path target = std::filesystem::canonical(file, none);
  if (none) return WriteFileAtomically(file, text);
  if (std::filesystem::is_regular_file(target, none)) {
    return WriteFileAtomically(target.string(), text);
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> out(
      std::fopen(target.c_str(), "w"), &std::fclose);
  if (out == nullptr ||
      std::fwrite(text.data(), 1, text.size(), out.get()) != text.size() ||
      std::fflush(out.get()) != 0) {
    return Error(ErrorCode::kIo, "cannot write to '" + Printable(file) + "': " +
                                     std::generic_category().message(errno));
  }
  return Done{};
}

// Options that name a file, with its name.
std::vector<std::pair<std::string, std::string>> FilesOf(
    const ExportOptions& options) {
  std::vector<std::pair<std::string, std::string>> files = {
      {"--junit", options.junit},
      {"--sarif", options.sarif},
      {"--markdown", options.markdown},
      {"--perfetto", options.perfetto}};
  std::erase_if(files, [](const auto& one) {
    return one.second.empty() || one.second == kStandardOutput;
  });
  return files;
}

// By their names: one may not be there yet.
bool IsSameFolder(const std::filesystem::path& a,
                  const std::filesystem::path& b) {
  const auto whole = [](const std::filesystem::path& path) {
    return (std::filesystem::absolute(path) / "").lexically_normal();
  };
  return whole(a) == whole(b);
}

Result<std::string> Perfetto(const ResultFile& result,
                             const std::string& folder) {
  std::vector<std::shared_ptr<const Trace>> traces;
  std::vector<std::string> folders = FindLegFolders(folder);
  folders.insert(folders.begin(), folder);
  for (const std::string& one : folders) {
    auto trace = Trace::Open(one, 0);
    if (!trace.ok()) {
      return trace.error().WithContext(
          "--perfetto needs the candidate's trace, which cannot be read "
          "(`diff --keep report` deletes it; `report --trace DIR` says where "
          "it is now)");
    }
    traces.push_back(*std::move(trace));
  }
  const Timeline timeline = MakeTimeline(traces, result);
  if (timeline.axis == Timeline::Axis::kOrder) {
    Complain(
        "--perfetto: this trace has no times: a microsecond of it is a "
        "record, in the order of each rank");
  }
  if (timeline.unplaced > 0) {
    Complain("--perfetto: findings not shown, of which " + Printable(folder) +
             " has no record: " + FormatCount(timeline.unplaced));
  }
  return RenderPerfetto(timeline, result);
}

std::string SourceRoot(const ExportOptions& options) {
  std::error_code unknown;
  if (options.source_root.empty()) {
    return std::filesystem::current_path(unknown).string();
  }
  return std::filesystem::absolute(options.source_root, unknown)
      .lexically_normal()
      .string();
}

}  // namespace

void AddExportOptions(CLI::App* command, ExportOptions* options) {
  command
      ->add_option("--junit", options->junit,
                   "JUnit XML: a case for each role and layer group")
      ->type_name("FILE");
  command
      ->add_option("--sarif", options->sarif,
                   "SARIF 2.1.0: each culprit at its line of the source")
      ->type_name("FILE");
  command
      ->add_option("--markdown", options->markdown,
                   "a summary for a pull request")
      ->type_name("FILE");
  command
      ->add_option("--perfetto", options->perfetto,
                   "a timeline of the candidate for ui.perfetto.dev, with "
                   "findings marked")
      ->type_name("FILE");
  command
      ->add_option("--source-root", options->source_root,
                   "top folder of the source, for SARIF; the working folder "
                   "by default")
      ->type_name("DIR");
}

std::vector<std::string> ExportsIn(const ExportOptions& options,
                                   const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& [option, file] : FilesOf(options)) {
    const auto path = std::filesystem::absolute(file);
    if (IsSameFolder(path.parent_path(), folder)) {
      names.push_back(path.filename().string());
    }
  }
  return names;
}

Status CheckExports(const ExportOptions& options, const std::string& output) {
  // What ttrace itself writes under a name is not replaced by something else.
  static const std::set<std::string> kOwn = {
      "result.json", "report.txt", "index.html",    "manifest.json",
      "index.jsonl", "meta.json",  "messages.jsonl"};
  std::set<std::filesystem::path> seen;
  for (const auto& [option, file] : FilesOf(options)) {
    const auto path = std::filesystem::absolute(file).lexically_normal();
    if (kOwn.contains(path.filename().string())) {
      return Error(ErrorCode::kInvalidArgument,
                   option + ": '" + Printable(file) +
                       "' has the name of a file of ttrace's own: choose "
                       "another");
    }
    if (!seen.insert(path).second) {
      return Error(ErrorCode::kInvalidArgument,
                   option + ": '" + Printable(file) + "' is asked for twice");
    }
    std::error_code ignored;
    const auto folder = std::filesystem::absolute(file).parent_path();
    if (std::filesystem::is_directory(file, ignored)) {
      return Error(ErrorCode::kInvalidArgument,
                   option + ": '" + Printable(file) +
                       "' is a folder: give the name of a file");
    }
    if (std::filesystem::is_directory(folder, ignored)) continue;
    if (!output.empty() && IsSameFolder(output, folder)) continue;
    return Error(ErrorCode::kNotFound, option + ": there is no folder '" +
                                           Printable(folder.string()) +
                                           "': make it first");
  }
  return Done{};
}

Status WriteExport(const std::string& file, const std::string& text) {
  if (file != kStandardOutput) {
    const Status written = WriteThrough(file, text);
    if (written.ok()) return Done{};
    const std::string folder =
        std::filesystem::absolute(file).parent_path().string();
    return Error(written.error().code(),
                 written.error().message() + FullDiskWords(folder));
  }
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0) {
    return Error(ErrorCode::kIo, "the standard output takes no more");
  }
  return Done{};
}

Status WriteExports(const ExportOptions& options, const ResultFile& result,
                    const std::string& trace) {
  if (!options.junit.empty()) {
    TTRACE_RETURN_IF_ERROR(WriteExport(options.junit, RenderJunit(result)));
  }
  if (!options.sarif.empty()) {
    TTRACE_RETURN_IF_ERROR(
        WriteExport(options.sarif, RenderSarif(result, SourceRoot(options))));
  }
  if (!options.markdown.empty()) {
    TTRACE_RETURN_IF_ERROR(
        WriteExport(options.markdown, RenderMarkdown(result)));
  }
  if (options.perfetto.empty()) return Done{};
  TTRACE_ASSIGN_OR_RETURN(const std::string bytes, Perfetto(result, trace));
  return WriteExport(options.perfetto, bytes);
}

}  // namespace ttrace
