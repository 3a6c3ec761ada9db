#include "src/run/output_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <vector>

#include "src/base/format.h"
#include "src/experiment/leg_names.h"
#include "src/run/orphan_ranks.h"
#include "src/trace/file.h"
#include "src/trace/format.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

Error Foreign(const fs::path& path) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("'{}' is not something that ttrace wrote; --force "
                           "removes only that. Choose another folder, or "
                           "remove it yourself",
                           Printable(path.string())));
}

std::string Name(const fs::path& path) { return path.filename().string(); }

bool IsPlainFile(const fs::path& path) {
  std::error_code missing;
  return fs::symlink_status(path, missing).type() == fs::file_type::regular;
}

bool IsPlainFolder(const fs::path& path) {
  std::error_code missing;
  return fs::symlink_status(path, missing).type() == fs::file_type::directory;
}

// The entries of a folder, sorted.
Result<std::vector<fs::path>> Entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    entries.push_back(it->path());
  }
  if (error) {
    return Error(
        ErrorCode::kIo,
        fmt::format("'{}': {}", Printable(folder.string()), error.message()));
  }
  return entries;
}

bool IsTrace(const fs::path& folder) {
  const fs::path manifest = folder / kManifestFile;
  if (!IsPlainFolder(folder) || !IsPlainFile(manifest)) return false;
  const Result<std::string> text =
      ReadWholeFile(manifest.string(), kMaxJsonFileBytes);
  if (!text.ok()) return false;
  const auto json = ParseJson(*text);
  const auto format = json.is_object() ? json.find("format") : json.end();
  return format != json.end() && *format == std::string(kFormatName);
}

// A result and a page may be long, and their beginnings tell.
std::string BeginningOf(const fs::path& path) {
  if (!IsPlainFile(path)) return "";
  std::string start(4096, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  return start;
}

bool IsResult(const fs::path& path) {
  const std::string start = BeginningOf(path);
  return start.find("\"schema\"") != std::string::npos &&
         start.find("\"verdict\"") != std::string::npos;
}

// Not somebody's web site.
bool IsReportPage(const fs::path& path) {
  return BeginningOf(path).find("<meta name=generator content=ttrace>") !=
         std::string::npos;
}

// Fails if something in a rank's folder was not written by a TraceWriter.
Status CheckRankFolder(const fs::path& folder) {
  TTRACE_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, Entries(folder));
  for (const fs::path& path : entries) {
    const std::string name = Name(path);
    // A file that is written beside and renamed has a longer name for a moment.
    const bool ours =
        name.starts_with(kMetaFile) || name == kIndexFile ||
        (name.starts_with("segment-") && path.extension() == ".safetensors");
    if (!ours || !IsPlainFile(path)) return Foreign(path);
  }
  return Done{};
}

// Fails if something in a trace is not a trace's.
Status CheckTrace(const fs::path& folder) {
  if (!IsTrace(folder)) return Foreign(folder);
  TTRACE_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, Entries(folder));
  for (const fs::path& path : entries) {
    const std::string name = Name(path);
    if (name.starts_with(kManifestFile) && IsPlainFile(path)) continue;
    if (name == "messages.jsonl" && IsPlainFile(path)) continue;
    // Output of the launches of single legs.
    if (path.extension() == ".log" && IsPlainFile(path)) continue;
    if (ParseRankFolderName(name) && IsPlainFolder(path)) {
      TTRACE_RETURN_IF_ERROR(CheckRankFolder(path));
      continue;
    }
    if (name != "legs" || !IsPlainFolder(path)) return Foreign(path);
    TTRACE_ASSIGN_OR_RETURN(const std::vector<fs::path> legs, Entries(path));
    for (const fs::path& leg : legs) {
      if (leg.extension() == ".log" && IsPlainFile(leg)) continue;
      TTRACE_RETURN_IF_ERROR(CheckTrace(leg));
    }
  }
  return Done{};
}

// Fails if something in a report is not a report's. That it *is* a report must
// be proved by a trace or a result: other programs write logs too.
Status CheckReport(const fs::path& folder,
                   const std::vector<std::string>& rewritten) {
  TTRACE_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, Entries(folder));
  bool proved = false;
  fs::path doubtful;
  for (const fs::path& path : entries) {
    const std::string name = Name(path);
    if (name == "reference" || name == "candidate" || name == "first_step") {
      TTRACE_RETURN_IF_ERROR(CheckTrace(path));
      proved = true;
    } else if ((name == "result.json" && IsResult(path)) ||
               (name == "index.html" && IsReportPage(path))) {
      proved = true;
    } else if (IsPlainFile(path) &&
               (name == "reference.log" || name == "candidate.log" ||
                name == "first_step.log" || name == "report.txt" ||
                std::find(rewritten.begin(), rewritten.end(), name) !=
                    rewritten.end())) {
      doubtful = path;
    } else {
      return Foreign(path);
    }
  }
  if (!proved && !doubtful.empty()) return Foreign(doubtful);
  return Done{};
}

Status RemoveAll(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return Done{};
  return Error(ErrorCode::kIo, fmt::format("'{}': {}", Printable(path.string()),
                                           error.message()));
}

// Fails if somebody writes into the folder or a trace in it: a live ttrace, or
// ranks that outlived theirs.
Status CheckNotInUse(const std::string& folder,
                     const std::vector<fs::path>& entries) {
  std::vector<fs::path> traces = entries;
  for (const std::string& leg : FindLegFolders(folder)) traces.push_back(leg);
  for (const fs::path& path : entries) {
    for (const std::string& leg : FindLegFolders(path.string())) {
      traces.push_back(leg);
    }
  }
  for (const fs::path& path : traces) {
    if (!IsPlainFolder(path)) continue;
    const auto lock = FolderLock::Take(path.string());
    if (!lock.ok()) return lock.error();
  }
  const std::vector<RunProcess> writers = FindWriters(folder);
  if (writers.empty()) return Done{};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("'{}' is in use: {} of an earlier run may still "
                           "write there. End {} first, or choose another "
                           "folder",
                           Printable(folder), PidWords(writers),
                           writers.size() == 1 ? "it" : "them"));
}

}  // namespace

Status CheckReplaceable(const std::string& folder, FolderKind kind, bool force,
                        const std::vector<std::string>& rewritten) {
  std::error_code error;
  if (!fs::exists(folder, error)) return Done{};
  TTRACE_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, Entries(folder));
  if (entries.empty()) return Done{};
  if (!force) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is not empty. Choose another folder, or "
                             "replace what ttrace wrote there with --force",
                             Printable(folder)));
  }
  TTRACE_RETURN_IF_ERROR(kind == FolderKind::kTrace
                             ? CheckTrace(folder)
                             : CheckReport(folder, rewritten));
  return CheckNotInUse(folder, entries);
}

Result<FolderLock> PrepareFolder(const std::string& folder, FolderKind kind,
                                 bool force,
                                 const std::vector<std::string>& rewritten) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder, error)) {
    return Error(
        ErrorCode::kIo,
        "cannot make the folder '" + Printable(folder) +
            "': " + (error ? error.message() : "there is a file of that name"));
  }
  TTRACE_ASSIGN_OR_RETURN(FolderLock lock, FolderLock::Take(folder));
  TTRACE_RETURN_IF_ERROR(CheckReplaceable(folder, kind, force, rewritten));
  TTRACE_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, Entries(folder));
  for (const fs::path& path : entries) {
    TTRACE_RETURN_IF_ERROR(RemoveAll(path));
  }
  return lock;
}

Status RemoveTrace(const std::string& folder) {
  TTRACE_RETURN_IF_ERROR(CheckTrace(folder));
  return RemoveAll(folder);
}

}  // namespace ttrace
