#include "src/run/capture_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <variant>
#include <vector>

#include "src/base/format.h"
#include "src/trace/file.h"
#include "src/trace/format.h"
#include "src/trace/index_line.h"
#include "src/trace/rank_meta.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

Result<RankMeta> ReadMeta(const fs::path& rank_folder) {
  TTRACE_ASSIGN_OR_RETURN(
      const std::string json,
      ReadWholeFile((rank_folder / kMetaFile).string(), kMaxJsonFileBytes));
  return DecodeRankMeta(json);
}

// The last whole lines of the index at `path`, of which `size` bytes are there,
// last first. Anything unreadable is nothing: the reader judges it later.
std::vector<std::string> LastWholeLines(const fs::path& path, int64_t size) {
  // An end line holds one sentence; a longer last line is a record being
  // written.
  constexpr int64_t kLongest = 64 << 10;
  const Result<File> file = File::Open(path.string());
  if (!file.ok()) return {};
  std::string tail(static_cast<size_t>(std::min(size, kLongest)), '\0');
  const Result<size_t> got =
      file->ReadAt(std::as_writable_bytes(std::span<char>(tail)),
                   size - static_cast<int64_t>(tail.size()));
  if (!got.ok() || *got != tail.size()) return {};
  std::vector<std::string> lines;
  size_t end = tail.rfind('\n');
  while (end != std::string::npos && end > 0) {
    const size_t before = tail.rfind('\n', end - 1);
    // The first one of a longer file is cut.
    if (before == std::string::npos && size > kLongest) break;
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    lines.push_back(tail.substr(begin, end - begin));
    end = before;
  }
  return lines;
}

std::optional<IndexLine> Decode(std::string line, const RankMeta& meta) {
  const size_t length = line.size();
  line.append(simdjson::SIMDJSON_PADDING, '\0');
  IndexLineDecoder decoder(meta);
  Result<IndexLine> decoded =
      decoder.DecodePadded(std::string_view(line).substr(0, length));
  if (!decoded.ok()) return std::nullopt;
  return *std::move(decoded);
}

// Whether the index has grown since: then its last line is not its last.
bool EndsInWholeLine(const fs::path& path, int64_t size) {
  const Result<File> file = File::Open(path.string());
  char last = 0;
  return file.ok() && size > 0 &&
         file->ReadAt(std::as_writable_bytes(std::span<char>(&last, 1)),
                      size - 1)
             .ok() &&
         last == '\n';
}

// Where the rank is, from the last record or seal of its index.
std::string Position(const std::string& folder, int64_t size) {
  const Result<RankMeta> meta = ReadMeta(folder);
  if (!meta.ok()) return "nothing yet";
  for (std::string& line :
       LastWholeLines(fs::path(folder) / kIndexFile, size)) {
    const auto decoded = Decode(std::move(line), *meta);
    if (!decoded) continue;
    if (const auto* record = std::get_if<RecordFields>(&*decoded)) {
      return fmt::format(
          "{} of {} (iteration {}, leg {})", ToString(record->id.role),
          record->id.fqn.empty() ? "the model" : Printable(record->id.fqn),
          record->id.iteration, Printable(record->leg));
    }
    if (const auto* seal = std::get_if<SealLine>(&*decoded)) {
      return fmt::format("leg {} of iteration {} is complete",
                         Printable(seal->leg), seal->iteration);
    }
    if (std::holds_alternative<EndLine>(*decoded)) {
      return "its capture has ended";
    }
  }
  return "no tensor yet";
}

}  // namespace

void CaptureWatch::Update() {
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder_, ignored)) {
    const auto name = ParseRankFolderName(entry.path().filename().string());
    if (!name) continue;
    RankIndex& rank = ranks_[name->rank];
    if (name->restart < rank.restart) continue;
    if (name->restart > rank.restart) {
      rank = RankIndex();
      rank.restart = name->restart;
    }
    const fs::path index = entry.path() / kIndexFile;
    std::error_code missing;
    const auto size = static_cast<int64_t>(fs::file_size(index, missing));
    if (missing || size == rank.bytes) continue;
    const Result<RankMeta> meta = ReadMeta(entry.path());
    if (!meta.ok()) continue;
    rank.bytes = size;
    rank.folder = entry.path().string();
    rank.closed = false;
    last_growth_ = Clock::now();
    if (EndsInWholeLine(index, size)) {
      for (std::string& line : LastWholeLines(index, size)) {
        const auto decoded = Decode(std::move(line), *meta);
        const auto* end = decoded ? std::get_if<EndLine>(&*decoded) : nullptr;
        rank.closed = end != nullptr;
        rank.complete = end != nullptr && end->complete;
        break;
      }
    }
    world_size_ = std::max(world_size_, meta->world_size);
  }
  ranks_closed_ = 0;
  incomplete_ = 0;
  for (const auto& [number, rank] : ranks_) {
    ranks_closed_ += rank.closed;
    incomplete_ += rank.closed && !rank.complete;
  }
}

std::string CaptureWatch::LastRecords() const {
  std::vector<std::pair<std::string, std::vector<int>>> places;
  for (const auto& [number, rank] : ranks_) {
    const std::string place = Position(rank.folder, rank.bytes);
    const auto found =
        std::find_if(places.begin(), places.end(),
                     [&](const auto& known) { return known.first == place; });
    if (found == places.end()) {
      places.push_back({place, {number}});
    } else {
      found->second.push_back(number);
    }
  }
  std::set<int> missing;
  for (int number = 0; number < world_size_; ++number) {
    if (!ranks_.contains(number)) missing.insert(number);
  }
  if (!missing.empty()) {
    places.push_back({"has not begun to capture",
                      std::vector<int>(missing.begin(), missing.end())});
  }
  // The fewest ranks are the odd ones.
  std::stable_sort(places.begin(), places.end(), [](auto& a, auto& b) {
    return a.second.size() < b.second.size();
  });
  constexpr size_t kMaxPlaces = 8;
  std::string text;
  for (size_t i = 0; i < std::min(places.size(), kMaxPlaces); ++i) {
    if (i > 0) text += "; ";
    text += FormatRanks(places[i].second, 0) + ": " + places[i].first;
  }
  if (places.size() > kMaxPlaces) {
    text += fmt::format("; {} more places", places.size() - kMaxPlaces);
  }
  return text;
}

}  // namespace ttrace
