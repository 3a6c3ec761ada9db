#include "src/project/recorded_reference.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <system_error>

#include "src/base/format.h"
#include "src/project/reference_key.h"
#include "src/run/output_folder.h"
#include "src/trace/file.h"
#include "src/trace/format.h"
#include "src/trace/hex_digest.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

nlohmann::json JsonOf(const fs::path& path) {
  constexpr size_t kLongest = 16 << 20;
  const auto text = ReadWholeFile(path.string(), kLongest);
  return text.ok() ? ParseJson(*text) : nlohmann::json();
}

std::string TextOrNone(const nlohmann::json& json, const char* key) {
  return json.is_object() ? TextAt(json, key) : "";
}

// The names and sizes of all its files, those of its legs included: a trace of
// gigabytes is not read for that. What a command printed is none of it.
std::string ContentsOf(const std::string& trace) {
  std::map<std::string, uintmax_t> sizes;
  std::error_code error;
  fs::recursive_directory_iterator it(trace, error);
  for (; !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    std::error_code gone;
    if (!it->is_regular_file(gone) || it->path().extension() == ".log") {
      continue;
    }
    sizes[it->path().lexically_relative(trace).string()] = it->file_size(gone);
  }
  std::string text;
  for (const auto& [name, size] : sizes) {
    text += name + '\0' + std::to_string(size) + '\0';
  }
  return HexDigest(XXH3_64bits(text.data(), text.size()));
}

Status Rename(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) return Done{};
  return Error(ErrorCode::kIo, "cannot move '" + Printable(from) + "' to '" +
                                   Printable(to) + "': " + error.message());
}

bool IsThere(const std::string& path) {
  std::error_code missing;
  return fs::exists(path, missing);
}

// Of a run that was ended as it began, a folder without anything is left.
Status Discard(const std::string& folder) {
  std::error_code missing;
  if (!IsThere(folder)) return Done{};
  if (fs::is_empty(folder, missing) && fs::remove(folder, missing)) {
    return Done{};
  }
  return RemoveTrace(folder);
}

}  // namespace

std::string RecordedReference::run_id() const {
  return TextOrNone(JsonOf(note_file), "run_id");
}

std::string RecordedReference::RecordedAt() const {
  return TextOrNone(JsonOf(note_file), "at");
}

std::string RecordedReference::WhyNot(const nlohmann::ordered_json& key) const {
  const nlohmann::json noted = JsonOf(note_file);
  if (!noted.is_object()) return "not recorded";
  const nlohmann::json manifest = JsonOf(fs::path(trace) / kManifestFile);
  const std::string id = TextOrNone(manifest, "run_id");
  if (id.empty() || id != TextOrNone(noted, "run_id")) {
    return "its trace is not there any more";
  }
  if (TextOrNone(noted, "contents") != ContentsOf(trace)) {
    return "files of its trace were removed or changed";
  }
  return WhatChanged(noted.value("key", nlohmann::json()), key);
}

Status RecordedReference::Replace(const std::string& recorded,
                                  const nlohmann::ordered_json& key) const {
  const nlohmann::json manifest = JsonOf(fs::path(recorded) / kManifestFile);
  nlohmann::ordered_json note;
  note["run_id"] = TextOrNone(manifest, "run_id");
  note["at"] = TextOrNone(manifest, "created");
  note["contents"] = ContentsOf(recorded);
  note["key"] = key;
  // Two renames lie between the old one and the new one, and no removal of
  // gigabytes, in which one may be interrupted.
  const std::string old = trace + ".old";
  TTRACE_RETURN_IF_ERROR(Discard(old));
  if (IsThere(trace)) TTRACE_RETURN_IF_ERROR(Rename(trace, old));
  TTRACE_RETURN_IF_ERROR(Rename(recorded, trace));
  if (IsThere(recorded + ".log")) {
    TTRACE_RETURN_IF_ERROR(Rename(recorded + ".log", trace + ".log"));
  }
  TTRACE_RETURN_IF_ERROR(WriteFileAtomically(note_file, JsonText(note) + "\n"));
  return Discard(old);
}

}  // namespace ttrace
