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
#include "src/trace/index/index_line.h"
#include "src/trace/index/line_reader.h"
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

// The last line of the index at `path`, of which `size` bytes are there. Empty
// if it is not whole, or long.
std::string LastLine(const fs::path& path, int64_t size) {
  // An end line holds one sentence; a longer last line is no such.
  constexpr int64_t kLongest = 64 << 10;
  const Result<File> file = File::Open(path.string());
  if (!file.ok()) return {};
  std::string tail(static_cast<size_t>(std::min(size, kLongest)), '\0');
  const Result<size_t> got =
      file->ReadAt(std::as_writable_bytes(std::span<char>(tail)),
                   size - static_cast<int64_t>(tail.size()));
  if (!got.ok() || *got != tail.size() || !tail.ends_with('\n')) return {};
  tail.pop_back();
  const size_t before = tail.rfind('\n');
  if (before == std::string::npos) return size > kLongest ? "" : tail;
  return tail.substr(before + 1);
}

std::optional<EndLine> DecodeEnd(std::string line, const RankMeta& meta) {
  const size_t length = line.size();
  line.append(simdjson::SIMDJSON_PADDING, '\0');
  Result<IndexLine> decoded = IndexLineDecoder(meta).DecodePadded(
      std::string_view(line).substr(0, length));
  if (!decoded.ok()) return std::nullopt;
  const auto* end = std::get_if<EndLine>(&*decoded);
  return end == nullptr ? std::nullopt : std::optional(*end);
}

std::string Described(const IndexLine& line) {
  if (const auto* record = std::get_if<RecordFields>(&line)) {
    return fmt::format(
        "{} of {} (iteration {}, leg {})", ToString(record->id.role),
        record->id.fqn.empty() ? "the model" : Printable(record->id.fqn),
        record->id.iteration, Printable(record->leg.name()));
  }
  if (const auto* seal = std::get_if<SealLine>(&line)) {
    return fmt::format("leg {} of iteration {} is complete",
                       Printable(seal->leg.name()), seal->iteration);
  }
  return std::holds_alternative<EndLine>(line) ? "its capture has ended" : "";
}

// Where the rank is, from the last record or seal of its index. All of it is
// read: a record is named by a line that may be far above it. What cannot be
// read is left to the reader, which judges it later.
std::string Position(const std::string& folder) {
  const Result<RankMeta> meta = ReadMeta(folder);
  Result<File> file =
      File::Open((fs::path(folder) / std::string(kIndexFile)).string());
  if (!meta.ok() || !file.ok()) return "nothing yet";
  LineReader lines(*std::move(file));
  IndexLineDecoder decoder(*meta);
  std::optional<IndexLine> last;
  while (true) {
    const auto line = lines.Next();
    if (!line.ok() || !*line) break;
    Result<IndexLine> decoded = decoder.DecodePadded(**line);
    if (!decoded.ok()) continue;
    if (!std::holds_alternative<SpecLine>(*decoded) &&
        !std::holds_alternative<NoteLine>(*decoded)) {
      last = *std::move(decoded);
    }
  }
  return last ? Described(*last) : "no tensor yet";
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
    last_growth_ = Clock::now();
    const auto end = DecodeEnd(LastLine(index, size), *meta);
    rank.closed = end.has_value();
    rank.complete = end && end->complete;
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
    const std::string place = Position(rank.folder);
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
