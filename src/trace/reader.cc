#include "src/trace/reader.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "src/base/check.h"
#include "src/trace/file.h"
#include "src/trace/format.h"
#include "src/trace/json.h"
#include "src/trace/rank_reader.h"
#include "src/trace/segment_pool.h"

namespace ttrace {
namespace {

Error Corrupt(std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message));
}

class FolderTrace final : public Trace {
 public:
  static Result<std::shared_ptr<const Trace>> Load(const std::string& folder);

  const std::string& folder() const override { return folder_; }
  const std::string& manifest_json() const override { return manifest_; }
  const DeviceMesh& mesh() const override { return ranks_.front().meta.mesh; }
  int world_size() const override { return ranks_.front().meta.world_size; }
  const std::vector<RankTrace>& ranks() const override { return ranks_; }
  const std::vector<int>& missing_ranks() const override { return missing_; }
  const std::vector<Record>& records() const override { return records_; }

  const Coordinate& coordinate(int rank) const override {
    const RankTrace* found = FindRank(rank);
    TTRACE_CHECK(found != nullptr, "this rank is missing from the trace");
    return found->meta.coordinate;
  }

  Status Read(const Record& record, int64_t offset,
              std::span<std::byte> out) const override;
  Status Verify(const Record& record) const override;

 private:
  const RankTrace* FindRank(int rank) const {
    const auto it = std::lower_bound(
        ranks_.begin(), ranks_.end(), rank,
        [](const RankTrace& r, int wanted) { return r.meta.rank < wanted; });
    return it != ranks_.end() && it->meta.rank == rank ? &*it : nullptr;
  }
  Status LoadManifest();
  Status LoadRanks();
  Status CheckAgreement() const;

  std::string folder_;
  std::string manifest_;
  std::string run_id_;
  std::vector<RankTrace> ranks_;  // never empty once loaded
  std::vector<int> missing_;
  std::vector<Record> records_;
  mutable SegmentPool segments_;
};

// The last start of each rank that has a folder.
Result<std::map<int, int>> FindRankFolders(const std::string& folder) {
  namespace fs = std::filesystem;
  std::map<int, int> restarts;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const auto found = ParseRankFolderName(it->path().filename().string());
    if (!found) continue;  // Not ours: people put notes and logs there.
    int& last = restarts.emplace(found->rank, 0).first->second;
    last = std::max(last, found->restart);
  }
  if (error) {
    return Error(ErrorCode::kIo, "'" + folder + "': " + error.message());
  }
  return restarts;
}

Status FolderTrace::LoadManifest() {
  const std::string path = folder_ + "/" + std::string(kManifestFile);
  Result<std::string> text = ReadWholeFile(path, kMaxJsonFileBytes);
  if (!text.ok()) return text.error();
  manifest_ = *std::move(text);
  JsonParser parser;
  const Result<simdjson::dom::object> object = parser.Parse(manifest_);
  if (!object.ok()) return object.error().WithContext(path);
  const JsonFields fields(*object);
  const Status version = CheckFormatVersion(fields);
  if (!version.ok()) return version.error().WithContext(path);
  const Result<std::string_view> run_id = fields.Text("run_id");
  if (run_id.ok()) run_id_ = *run_id;
  return Done{};
}

Status FolderTrace::LoadRanks() {
  TTRACE_ASSIGN_OR_RETURN(const auto restarts, FindRankFolders(folder_));
  for (const auto& [rank, restart] : restarts) {
    const std::string path = folder_ + "/" + RankFolderName({rank, restart});
    Result<RankContents> result = ReadRank(path, rank);
    if (!result.ok()) {
      // It died before it had written anything. An earlier start is no
      // substitute: the other ranks have moved on from it.
      if (result.error().code() == ErrorCode::kNotFound) continue;
      return result.error().WithContext("rank " + std::to_string(rank));
    }
    RankContents contents = *std::move(result);
    ranks_.push_back(std::move(contents.trace));
    std::move(contents.records.begin(), contents.records.end(),
              std::back_inserter(records_));
  }
  if (ranks_.empty()) {
    return Error(ErrorCode::kNotFound,
                 "'" + folder_ + "': no rank has written a trace");
  }
  return Done{};
}

Status FolderTrace::CheckAgreement() const {
  const RankMeta& first = ranks_.front().meta;
  std::set<Coordinate> coordinates;
  for (const RankTrace& rank : ranks_) {
    const RankMeta& meta = rank.meta;
    const auto differs = [&](const std::string& what) {
      return Corrupt(rank.folder + ": " + what + " differs from that of rank " +
                     std::to_string(first.rank) +
                     "; were two runs mixed in one folder?");
    };
    if (meta.world_size != first.world_size) return differs("the world size");
    if (meta.mesh != first.mesh) return differs("the mesh");
    if (meta.run_id != first.run_id) return differs("the run id");
    if (!coordinates.insert(meta.coordinate).second) {
      return Corrupt(rank.folder + ": another rank has the same coordinate");
    }
  }
  if (!run_id_.empty() && !first.run_id.empty() && run_id_ != first.run_id) {
    return Corrupt(folder_ +
                   ": the manifest has another run id than the ranks");
  }
  return Done{};
}

Result<std::shared_ptr<const Trace>> FolderTrace::Load(
    const std::string& folder) {
  auto trace = std::make_shared<FolderTrace>();
  trace->folder_ = folder;
  TTRACE_RETURN_IF_ERROR(trace->LoadManifest());
  TTRACE_RETURN_IF_ERROR(trace->LoadRanks());
  TTRACE_RETURN_IF_ERROR(trace->CheckAgreement());
  size_t next = 0;
  for (int rank = 0; rank < trace->world_size(); ++rank) {
    if (next < trace->ranks_.size() && trace->ranks_[next].meta.rank == rank) {
      ++next;
    } else {
      trace->missing_.push_back(rank);
    }
  }
  return std::shared_ptr<const Trace>(std::move(trace));
}

Status FolderTrace::Read(const Record& record, int64_t offset,
                         std::span<std::byte> out) const {
  const RankTrace* rank = FindRank(record.rank);
  const Extent& extent = record.extent;
  if (rank == nullptr || offset < 0 || offset > extent.bytes ||
      out.size() > static_cast<uint64_t>(extent.bytes - offset)) {
    return Error(ErrorCode::kInvalidArgument,
                 "rank " + std::to_string(record.rank) + ": " +
                     Abridged(ToString(record.id)) + ": cannot read " +
                     std::to_string(out.size()) + " bytes at " +
                     std::to_string(offset) + " of " +
                     std::to_string(extent.bytes));
  }
  if (out.empty()) return Done{};  // Its segment need not even exist.
  const std::string path = rank->folder + "/" + SegmentFileName(extent.segment);
  Result<std::shared_ptr<const File>> file = segments_.Get(path);
  if (!file.ok()) {
    // It was there when the trace was opened.
    const ErrorCode code = file.error().code();
    return Error(code == ErrorCode::kNotFound ? ErrorCode::kCorrupt : code,
                 file.error().message());
  }
  TTRACE_ASSIGN_OR_RETURN(const size_t got,
                          (*file)->ReadAt(out, extent.offset + offset));
  if (got < out.size()) {
    return Corrupt(path + ": became shorter: " + Abridged(ToString(record.id)) +
                   " is no longer inside");
  }
  return Done{};
}

Status FolderTrace::Verify(const Record& record) const {
  constexpr int64_t kTileBytes = 1024 * 1024;
  std::vector<std::byte> tile;
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (int64_t at = 0; at < record.extent.bytes; at += kTileBytes) {
    tile.resize(
        static_cast<size_t>(std::min(kTileBytes, record.extent.bytes - at)));
    TTRACE_RETURN_IF_ERROR(Read(record, at, tile));
    XXH3_64bits_update(&hash, tile.data(), tile.size());
  }
  if (XXH3_64bits_digest(&hash) != record.extent.xxh3) {
    return Corrupt("rank " + std::to_string(record.rank) + ": " +
                   SegmentFileName(record.extent.segment) + ": the bytes of " +
                   Abridged(ToString(record.id)) +
                   " are not those that were written");
  }
  return Done{};
}

}  // namespace

Result<std::shared_ptr<const Trace>> Trace::Open(const std::string& folder) {
  return FolderTrace::Load(folder);
}

}  // namespace ttrace
