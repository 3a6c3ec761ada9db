#include "src/project/reference_key.h"

#include <fmt/format.h>
#include <fnmatch.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "src/base/format.h"
#include "src/project/installed_packages.h"
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

// `path` as it is called in the project; nothing: it lies outside.
std::optional<std::string> NameIn(const Project& project,
                                  const fs::path& path) {
  const std::string name =
      path.lexically_normal().lexically_relative(project.folder).string();
  if (name.empty() || name == "." || name.starts_with("..")) {
    return std::nullopt;
  }
  return name;
}

using Files = std::map<std::string, fs::path>;  // by name in the project

void AddFile(const Project& project, const fs::path& path, Files* files) {
  std::error_code missing;
  if (!fs::is_regular_file(path, missing)) return;
  if (const auto name = NameIn(project, path)) files->emplace(*name, path);
}

// Scripts, configurations and data by their names, modules by theirs.
void AddFilesOfCommand(const Project& project, const fs::path& folder,
                       const std::vector<std::string>& words, Files* files) {
  for (size_t i = 0; i < words.size(); ++i) {
    AddFile(project, folder / words[i], files);
    if (i == 0 || words[i - 1] != "-m") continue;
    std::string module = words[i];
    std::replace(module.begin(), module.end(), '.', '/');
    AddFile(project, folder / (module + ".py"), files);
    AddFile(project, folder / module / "__main__.py", files);
    AddFile(project, folder / module / "__init__.py", files);
  }
}

bool IsHidden(const fs::path& path) {
  return path.filename().string().starts_with(".");
}

// All files of the project but hidden ones and its results.
std::vector<std::string> AllFiles(const Project& project) {
  std::vector<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator it(
      project.folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    std::error_code gone;
    if (it->is_directory(gone)) {
      if (IsHidden(it->path()) || it->path() == fs::path(project.output)) {
        it.disable_recursion_pending();
      }
    } else if (const auto name = NameIn(project, it->path())) {
      names.push_back(*name);
    }
  }
  return names;
}

Status AddDepends(const Project& project, const ProjectExperiment& experiment,
                  Files* files) {
  if (experiment.depends.empty()) return Done{};
  const std::vector<std::string> names = AllFiles(project);
  for (const auto& [pattern, at] : experiment.depends) {
    bool any = false;
    for (const std::string& name : names) {
      if (fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
      any = true;
      AddFile(project, fs::path(project.folder) / name, files);
    }
    if (!any) {
      return project.Wrong(at, "no file of the project matches '" +
                                   Printable(pattern) +
                                   "'; patterns are relative to the folder of "
                                   "this file, and '*' matches slashes, too");
    }
  }
  return Done{};
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

std::vector<std::string> CommandWords(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  char quote = 0;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else if (c == '\\' && quote == '"' && i + 1 < command.size()) {
        word += command[++i];
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '\\' && i + 1 < command.size()) {
      word += command[++i];
    } else if (std::string_view(" \t\r\n;&|<>()=").find(c) !=
               std::string_view::npos) {
      end_word();
    } else {
      word += c;
    }
  }
  end_word();
  return words;
}

Result<nlohmann::ordered_json> ReferenceKey(const Project& project,
                                            const ProjectExperiment& experiment,
                                            const Variables& options,
                                            const std::string& path) {
  const std::vector<std::string> words =
      CommandWords(experiment.reference_command);
  Files files;
  AddFilesOfCommand(project, experiment.working_folder, words, &files);
  TTRACE_RETURN_IF_ERROR(AddDepends(project, experiment, &files));
  std::map<std::string, std::string> contents;
  for (const auto& [name, file] : files) {
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
  key["packages"] = InstalledPackages(words, experiment.working_folder, path);
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
