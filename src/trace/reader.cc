#include "src/trace/reader.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "src/base/check.h"
#include "src/base/for_each.h"
#include "src/base/rank_words.h"
#include "src/trace/file.h"
#include "src/trace/format.h"
#include "src/trace/index/json.h"
#include "src/trace/rank_reader.h"
#include "src/trace/segments/segment_pool.h"
#include "src/trace/segments/verified_records.h"
#include "src/trace/segments/verify_ahead.h"

namespace ttrace {
namespace {

class FolderTrace final : public Trace {
 public:
  static Result<std::shared_ptr<const Trace>> Load(const std::string& folder,
                                                   int threads);

  const std::string& folder() const override { return folder_; }
  const std::string& manifest_json() const override { return manifest_; }
  const DeviceMesh& mesh() const override { return ranks_.front().meta.mesh; }
  int world_size() const override { return ranks_.front().meta.world_size; }
  const std::vector<RankTrace>& ranks() const override { return ranks_; }
  const std::vector<int>& missing_ranks() const override { return missing_; }
  const RecordTable& records() const override { return records_; }

  const Coordinate& coordinate(int rank) const override {
    return coordinate(rank, 0);
  }

  int grid_count() const override {
    return static_cast<int>(ranks_.front().meta.views.size()) + 1;
  }
  const DeviceMesh& mesh(int grid) const override {
    return ranks_.front().meta.MeshOf(grid);
  }
  const Coordinate& coordinate(int rank, int grid) const override {
    const RankTrace* found = FindRank(rank);
    TTRACE_CHECK(found != nullptr, "this rank is missing from the trace");
    return found->meta.CoordinateIn(grid);
  }

  Status Read(const Record& record, int64_t offset,
              std::span<std::byte> out) const override;
  Result<std::vector<std::byte>> ReadInstead(
      const Record& record) const override;
  Status Verify(const Record& record) const override;
  bool IsUnverified(const Record& record) const override {
    return IsOurs(record) && !verified_->IsGood(OwnerOf(record));
  }
  Status ReadUnverified(const Record& record, int64_t offset,
                        std::span<std::byte> out) const override;
  Status Confirm(const Record& record, uint64_t xxh3) const override;
  std::vector<DamagedRecord> damaged() const override;

 private:
  const RankTrace* FindRank(int rank) const {
    const auto it = std::lower_bound(
        ranks_.begin(), ranks_.end(), rank,
        [](const RankTrace& r, int wanted) { return r.meta.rank < wanted; });
    return it != ranks_.end() && it->meta.rank == rank ? &*it : nullptr;
  }
  Status LoadManifest();
  struct RankThatWasRead {
    int rank = 0;
    std::optional<Result<std::unique_ptr<RankContents>>> contents;
  };
  Status LoadRanks(int threads);
  Status AddRanks(std::vector<RankThatWasRead>* read);
  Status AddRank(int rank, const Result<std::unique_ptr<RankContents>>& read);
  Status CheckAgreement() const;
  Status CheckRunIds() const;

  // The record that was written with the bytes of `record`.
  size_t OwnerOf(const Record& record) const {
    const auto number = static_cast<size_t>(record.number());
    const std::optional<int64_t> owner = record.same_as();
    if (!owner) return number;
    const std::optional<Record> found = records_.Find(record.rank(), *owner);
    TTRACE_CHECK(found.has_value(), "the index reader has seen it");
    return static_cast<size_t>(found->number());
  }

  bool IsOurs(const Record& record) const {
    const auto number = static_cast<size_t>(record.number());
    return record.number() >= 0 && number < records_.size() &&
           (records_[number] == record ||
            (records_[number].rank() == record.rank() &&
             records_[number].extent() == record.extent()));
  }
  std::string SegmentPath(const Record& record) const {
    return FindRank(record.rank())->folder + "/" +
           SegmentFileName(record.extent().segment);
  }
  Error Named(const Record& record, const Error& error) const;
  Status CheckRange(const Record& record, int64_t offset, size_t bytes) const;
  Status ReadStored(const Record& record, int64_t offset,
                    std::span<std::byte> out) const;
  // Of a record of this trace, without regard to its checksum.
  Status ReadBytes(const Record& record, int64_t offset,
                   std::span<std::byte> out) const;
  Status ReadAndVerify(const Record& record, std::span<std::byte> out) const;
  Status VerifyInTiles(const Record& record) const;
  void VerifyWithNeighbours(const Record& record, size_t number) const;
  Status CheckDigest(const Record& record, uint64_t digest) const;

  std::string folder_;
  std::string manifest_;
  std::string run_id_;
  std::vector<RankTrace> ranks_;  // never empty once loaded
  std::vector<int> missing_;
  RecordTable records_;
  mutable SegmentPool segments_;
  std::unique_ptr<VerifiedRecords> verified_;
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

// Some ranks at a time, because what was read of each stays beside the table of
// all until it is added: by one thread, while others read the next ones.
Status FolderTrace::LoadRanks(int threads) {
  const unsigned all = std::max(std::thread::hardware_concurrency(), 1U);
  const size_t at_once =
      2 * (threads > 0 ? static_cast<size_t>(threads) : size_t{all});
  TTRACE_ASSIGN_OR_RETURN(const auto restarts, FindRankFolders(folder_));
  const std::vector<std::pair<int, int>> ranks(restarts.begin(),
                                               restarts.end());
  std::vector<RankThatWasRead> read;
  for (size_t first = 0; first < ranks.size(); first += at_once) {
    std::vector<RankThatWasRead> next(std::min(at_once, ranks.size() - first));
    TTRACE_RETURN_IF_ERROR(
        ForEach(threads, next.size() + 1, [&](size_t i) -> Status {
          if (i == 0) return AddRanks(&read);
          const auto& [rank, restart] = ranks[first + i - 1];
          next[i - 1].rank = rank;
          next[i - 1].contents.emplace(
              ReadRank(folder_ + "/" + RankFolderName({rank, restart}), rank));
          return Done{};
        }));
    read = std::move(next);
  }
  TTRACE_RETURN_IF_ERROR(AddRanks(&read));
  if (ranks_.empty()) {
    return Error(ErrorCode::kNotFound,
                 "'" + folder_ + "': no rank has written a trace");
  }
  return Done{};
}

Status FolderTrace::AddRanks(std::vector<RankThatWasRead>* read) {
  for (RankThatWasRead& one : *read) {
    TTRACE_RETURN_IF_ERROR(AddRank(one.rank, *one.contents));
    one.contents.reset();
  }
  return Done{};
}

Status FolderTrace::AddRank(int rank,
                            const Result<std::unique_ptr<RankContents>>& read) {
  if (!read.ok()) {
    // It died before it had written anything. An earlier start is no
    // substitute: the other ranks have moved on from it.
    if (read.error().code() == ErrorCode::kNotFound) return Done{};
    return read.error().WithContext("rank " + std::to_string(rank));
  }
  RankContents& contents = **read;
  if (contents.records.size() > RecordTable::kMaxRecords - records_.size()) {
    return Error(ErrorCode::kUnsupported,
                 "'" + folder_ + "': more records than can be numbered");
  }
  ranks_.push_back(std::move(contents.trace));
  records_.Append(contents.records);
  return Done{};
}

Status FolderTrace::CheckAgreement() const {
  const RankMeta& first = ranks_.front().meta;
  std::set<std::pair<size_t, Coordinate>> places;  // by grid
  for (const RankTrace& rank : ranks_) {
    const RankMeta& meta = rank.meta;
    const auto differs = [&](const std::string& what) {
      return Corrupt(rank.folder + ": " + what + " differs from that of rank " +
                     std::to_string(first.rank) +
                     "; were two runs mixed in one folder?");
    };
    if (meta.world_size != first.world_size) return differs("the world size");
    if (meta.mesh != first.mesh) return differs("the mesh");
    if (!places.emplace(0, meta.coordinate).second) {
      return Corrupt(rank.folder + ": another rank has the same coordinate");
    }
    if (meta.views.size() != first.views.size())
      return differs("the number of views");
    for (size_t i = 0; i < meta.views.size(); ++i) {
      if (meta.views[i].mesh != first.views[i].mesh) {
        return differs("a view's mesh");
      }
      if (!places.emplace(i + 1, meta.views[i].coordinate).second) {
        return Corrupt(rank.folder +
                       ": another rank has the same coordinate in a view");
      }
    }
  }
  return CheckRunIds();
}

// "ranks 0, 1 belong to run 6f1c, rank 2 to run 77aa"
Status FolderTrace::CheckRunIds() const {
  std::map<std::string, std::vector<int>> ranks;
  for (const RankTrace& rank : ranks_) {
    ranks[rank.meta.run_id].push_back(rank.meta.rank);
  }
  const auto name = [](const std::string& run_id) {
    return run_id.empty() ? "an unnamed run" : "run " + Abridged(run_id);
  };
  // Where either does not say, the manifest and the ranks do not disagree.
  const std::string& of_ranks = ranks.begin()->first;
  if (ranks.size() == 1 &&
      (of_ranks.empty() || run_id_.empty() || of_ranks == run_id_)) {
    return Done{};
  }
  std::vector<std::pair<std::vector<int>, std::string>> in_order;
  for (const auto& [run_id, members] : ranks) {
    in_order.emplace_back(members, run_id);
  }
  std::sort(in_order.begin(), in_order.end());
  std::string text;
  for (const auto& [members, run_id] : in_order) {
    text += (text.empty() ? "" : ", ") + RankWords(members);
    text += (members.size() == 1 ? " belongs to " : " belong to ");
    text += name(run_id);
  }
  if (!run_id_.empty()) text += ", manifest.json to " + name(run_id_);
  return Corrupt(folder_ + ": two runs are mixed in this folder: " + text);
}

Result<std::shared_ptr<const Trace>> FolderTrace::Load(
    const std::string& folder, int threads) {
  auto trace = std::make_shared<FolderTrace>();
  trace->folder_ = folder;
  TTRACE_RETURN_IF_ERROR(trace->LoadManifest());
  TTRACE_RETURN_IF_ERROR(trace->LoadRanks(threads));
  TTRACE_RETURN_IF_ERROR(trace->CheckAgreement());
  trace->verified_ = std::make_unique<VerifiedRecords>(trace->records_.size());
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

std::string WhyNoValues(const Record& record) {
  const std::string leg = "leg " + Abridged(record.leg().name());
  if (record.measured()) {
    return "of " + leg + " only the difference was kept, not the values";
  }
  if (const std::optional<Summary> summary = record.summary()) {
    return "only a " + std::string(ToString(*summary)) +
           " was kept, not the values";
  }
  return leg +
         " was compared with another reference when it was recorded, and its "
         "values were not kept; record it with this one, or with --keep-values";
}

Error FolderTrace::Named(const Record& record, const Error& error) const {
  return error.WithContext("rank " + std::to_string(record.rank()) + ": " +
                           SegmentPath(record) + ": " +
                           Abridged(ToString(record.id())));
}

Status FolderTrace::Read(const Record& record, int64_t offset,
                         std::span<std::byte> out) const {
  if (record.holds_values()) return ReadStored(record, offset, out);
  return Error(ErrorCode::kIncomparable,
               "rank " + std::to_string(record.rank()) + ": " +
                   Abridged(ToString(record.id())) + ": " +
                   WhyNoValues(record));
}

Result<std::vector<std::byte>> FolderTrace::ReadInstead(
    const Record& record) const {
  std::vector<std::byte> bytes(static_cast<size_t>(record.extent().bytes));
  TTRACE_RETURN_IF_ERROR(ReadStored(record, 0, bytes));
  return bytes;
}

Status FolderTrace::CheckRange(const Record& record, int64_t offset,
                               size_t bytes) const {
  const Extent& extent = record.extent();
  if (IsOurs(record) && offset >= 0 && offset <= extent.bytes &&
      bytes <= static_cast<uint64_t>(extent.bytes - offset)) {
    return Done{};
  }
  return Error(ErrorCode::kInvalidArgument,
               "rank " + std::to_string(record.rank()) + ": " +
                   Abridged(ToString(record.id())) + ": cannot read " +
                   std::to_string(bytes) + " bytes at " +
                   std::to_string(offset) + " of " +
                   std::to_string(extent.bytes));
}

Status FolderTrace::ReadStored(const Record& record, int64_t offset,
                               std::span<std::byte> out) const {
  TTRACE_RETURN_IF_ERROR(CheckRange(record, offset, out.size()));
  const Extent& extent = record.extent();
  if (out.empty()) return Done{};  // Its segment need not even exist.
  const size_t number = OwnerOf(record);
  VerifyWithNeighbours(record, number);
  if (!verified_->IsGood(number)) {
    bool filled = false;
    Status status = verified_->Ensure(number, [&] {
      filled = out.size() == static_cast<uint64_t>(extent.bytes);
      return filled ? ReadAndVerify(record, out) : VerifyInTiles(record);
    });
    if (!status.ok() || filled) return status;
  }
  const Status read = ReadBytes(record, offset, out);
  if (!read.ok()) return Named(record, read.error());
  return Done{};
}

Status FolderTrace::Verify(const Record& record) const {
  if (!IsOurs(record)) {
    return Error(ErrorCode::kInvalidArgument, "a record of another trace");
  }
  const size_t number = OwnerOf(record);
  if (verified_->IsGood(number)) return Done{};
  VerifyWithNeighbours(record, number);
  return verified_->Ensure(number, [&] { return VerifyInTiles(record); });
}

Status FolderTrace::ReadUnverified(const Record& record, int64_t offset,
                                   std::span<std::byte> out) const {
  if (!record.holds_values()) return Read(record, offset, out);
  TTRACE_RETURN_IF_ERROR(CheckRange(record, offset, out.size()));
  if (out.empty()) return Done{};
  const Status read = ReadBytes(record, offset, out);
  if (!read.ok()) return Named(record, read.error());
  return Done{};
}

Status FolderTrace::Confirm(const Record& record, uint64_t xxh3) const {
  TTRACE_RETURN_IF_ERROR(CheckRange(record, 0, 0));
  return verified_->Ensure(OwnerOf(record),
                           [&] { return CheckDigest(record, xxh3); });
}

// If it is small: else, and if anything is wrong, it is verified by itself.
void FolderTrace::VerifyWithNeighbours(const Record& record,
                                       size_t number) const {
  if (!verified_->IsNew(number) ||
      record.extent().bytes > kMaxVerifiedAheadBytes) {
    return;
  }
  const auto file = segments_.Get(SegmentPath(record));
  if (file.ok()) VerifyAhead(**file, records_, number, verified_.get());
}

Status FolderTrace::ReadBytes(const Record& record, int64_t offset,
                              std::span<std::byte> out) const {
  Result<std::shared_ptr<const File>> file = segments_.Get(SegmentPath(record));
  if (!file.ok()) {
    // It was there when the trace was opened.
    const ErrorCode code = file.error().code();
    return Error(code == ErrorCode::kNotFound ? ErrorCode::kCorrupt : code,
                 file.error().message());
  }
  TTRACE_ASSIGN_OR_RETURN(
      const size_t got, (*file)->ReadAt(out, record.extent().offset + offset));
  if (got < out.size()) {
    return Corrupt("the file became shorter and no longer holds all of it");
  }
  return Done{};
}

Status FolderTrace::ReadAndVerify(const Record& record,
                                  std::span<std::byte> out) const {
  const Status read = ReadBytes(record, 0, out);
  if (!read.ok()) return Named(record, read.error());
  return CheckDigest(record, XXH3_64bits(out.data(), out.size()));
}

Status FolderTrace::VerifyInTiles(const Record& record) const {
  constexpr int64_t kTileBytes = 256 * 1024;
  thread_local std::vector<std::byte> tile;
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (int64_t at = 0; at < record.extent().bytes; at += kTileBytes) {
    tile.resize(
        static_cast<size_t>(std::min(kTileBytes, record.extent().bytes - at)));
    const Status read = ReadBytes(record, at, tile);
    if (!read.ok()) return Named(record, read.error());
    XXH3_64bits_update(&hash, tile.data(), tile.size());
  }
  return CheckDigest(record, XXH3_64bits_digest(&hash));
}

Status FolderTrace::CheckDigest(const Record& record, uint64_t digest) const {
  if (digest == record.extent().xxh3) return Done{};
  return Named(record, Corrupt("damaged: its bytes are not those that were "
                               "written (their checksum differs)"));
}

std::vector<DamagedRecord> FolderTrace::damaged() const {
  std::vector<DamagedRecord> out;
  for (const auto& [number, error] : verified_->bad()) {
    out.push_back({records_[number], error});
  }
  return out;
}

}  // namespace

Result<std::shared_ptr<const Trace>> Trace::Open(const std::string& folder,
                                                 int threads) {
  return FolderTrace::Load(folder, threads);
}

}  // namespace ttrace
