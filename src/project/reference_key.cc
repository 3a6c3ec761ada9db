#include "src/project/reference_key.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <filesystem>
#include <map>
#include <set>

#include "src/base/format.h"
#include "src/project/installed_packages.h"
#include "src/project/reference_files.h"
#include "src/trace/file.h"
#include "src/trace/hex_digest.h"
#include "src/trace/note_json.h"
#include "ttrace/version.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// Where reading a file would take longer than it is worth: its size and time
// stand for its content.
constexpr int64_t kLargestRead = 64 << 20;

Result<std::string> ContentOf(const fs::path& path) {
  TTRACE_ASSIGN_OR_RETURN(const File file,
                          File::Open(path.string(), Links::kFollow));
  TTRACE_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  if (size > kLargestRead) {
    std::error_code ignored;
    const auto time = fs::last_write_time(path, ignored).time_since_epoch();
    return fmt::format("{} bytes of {}", size, time.count());
  }
  std::string content(static_cast<size_t>(size), '\0');
  TTRACE_ASSIGN_OR_RETURN(
      const size_t got,
      file.ReadAt(std::as_writable_bytes(std::span<char>(content)), 0));
  return HexDigest(XXH3_64bits(content.data(), got));
}

std::string Quoted(const nlohmann::json& value) {
  return value.is_string() ? "'" + Printable(value.get<std::string>()) + "'"
                           : Printable(JsonText(value));
}

// The first entry of two objects that is not the same.
std::string FirstChange(const nlohmann::json& before, const nlohmann::json& now,
                        const std::string& what) {
  std::set<std::string> keys;
  for (const auto* side : {&before, &now}) {
    if (!side->is_object()) continue;
    for (const auto& [key, value] : side->items()) keys.insert(key);
  }
  const auto at = [](const nlohmann::json& side, const std::string& key) {
    return side.is_object() ? side.value(key, nlohmann::json())
                            : nlohmann::json();
  };
  for (const std::string& key : keys) {
    const nlohmann::json then = at(before, key);
    const nlohmann::json value = at(now, key);
    if (then == value) continue;
    const std::string name = what + Printable(key);
    if (what == "file ") {
      return name + (then.is_null()    ? " is new"
                     : value.is_null() ? " is gone"
                                       : " has changed");
    }
    return name + " is " + (value.is_null() ? "not given" : Quoted(value)) +
           (then.is_null() ? "" : " instead of " + Quoted(then));
  }
  return "";
}

}  // namespace

Result<nlohmann::ordered_json> ReferenceKey(const Project& project,
                                            const ProjectExperiment& experiment,
                                            const Variables& options,
                                            const std::string& path) {
  TTRACE_ASSIGN_OR_RETURN(const ReferenceFiles depends,
                          FilesOfReference(project, experiment));
  std::map<std::string, std::string> contents;
  for (const auto& [name, file] : depends.files) {
    TTRACE_ASSIGN_OR_RETURN(contents[name], ContentOf(file));
  }
  Variables environment = experiment.environment;
  for (const auto& [name, value] : experiment.reference_environment) {
    environment.insert_or_assign(name, value);
  }
  nlohmann::ordered_json key;
  key["command"] = experiment.reference_command;
  key["working_folder"] = experiment.working_folder;
  key["ttrace"] = std::string(kVersion);
  key["options"] = options;
  key["environment"] = environment;
  key["packages"] = InstalledPackages(experiment.reference_command,
                                      experiment.working_folder, path);
  key["files"] = contents;
  return key;
}

std::string WhatChanged(const nlohmann::json& before,
                        const nlohmann::json& now) {
  if (before == now) return "";
  if (!before.is_object()) return "what it depended on is not known";
  const std::pair<const char*, const char*> kParts[] = {
      {"options", "--"},
      {"environment", "variable "},
      {"packages", "package "},
      {"files", "file "}};
  for (const char* key : {"command", "working_folder", "ttrace"}) {
    if (before.value(key, nlohmann::json()) !=
        now.value(key, nlohmann::json())) {
      const std::string name = key;
      return (name == "command"          ? "its command has changed"
              : name == "working_folder" ? "its working folder has changed"
                                         : "ttrace has another version");
    }
  }
  for (const auto& [key, what] : kParts) {
    std::string change = FirstChange(before.value(key, nlohmann::json()),
                                     now.value(key, nlohmann::json()), what);
    if (!change.empty()) return change;
  }
  return "what it depended on is not known";
}

}  // namespace ttrace
