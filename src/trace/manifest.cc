// CreateTraceFolder: manifest.json, and who may overwrite what.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "src/trace/file.h"
#include "src/trace/format.h"
#include "src/trace/index/json.h"
#include "src/trace/writer.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// Adds our two fields and lays it out for people to read.
Result<std::string> CompleteManifest(const std::string& json_object) {
  // Checked by the parser that will read it: nlohmann would take any depth and
  // recurse with it.
  TTRACE_ASSIGN_OR_RETURN(const std::string compact,
                          CompactJsonObject(json_object));
  const auto given = nlohmann::ordered_json::parse(compact);
  nlohmann::ordered_json manifest;
  manifest["format"] = kFormatName;
  manifest["version"] = kFormatVersion;
  for (const auto& [key, value] : given.items()) {
    if (key != "format" && key != "version") manifest[key] = value;
  }
  return manifest.dump(2) + "\n";
}

Error SystemError(const std::string& folder, const std::error_code& error) {
  return Error(ErrorCode::kIo, "'" + folder + "': " + error.message());
}

}  // namespace

Status CreateTraceFolder(const std::string& folder,
                         const std::string& json_object, bool force) {
  if (folder.empty()) {
    return Error(ErrorCode::kInvalidArgument, "the trace folder has no name");
  }
  const Result<std::string> manifest = CompleteManifest(json_object);
  if (!manifest.ok()) return manifest.error().WithContext("manifest");

  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return SystemError(folder, error);
  std::vector<fs::path> ours;
  bool empty = true;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    empty = false;
    const std::string name = it->path().filename().string();
    if (name == kManifestFile || ParseRankFolderName(name)) {
      ours.push_back(it->path());
    }
  }
  if (error) return SystemError(folder, error);
  if (!empty && !force) {
    return Error(ErrorCode::kInvalidArgument,
                 "'" + folder + "' exists and is not empty");
  }
  // The ranks of another run must not be taken for ours. What is not a trace's
  // is left alone.
  for (const fs::path& path : ours) {
    fs::remove_all(path, error);
    if (error) return SystemError(path.string(), error);
  }
  return WriteFileAtomically(folder + "/" + std::string(kManifestFile),
                             *manifest);
}

}  // namespace ttrace
