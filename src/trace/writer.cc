#include "src/trace/writer.h"

#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "src/trace/file.h"
#include "src/trace/format.h"
#include "src/trace/hasher.h"
#include "src/trace/index/index_chain.h"
#include "src/trace/index/index_line.h"
#include "src/trace/index/record_check.h"
#include "src/trace/rank_meta.h"
#include "src/trace/segments/segment_writer.h"
#include "src/trace/strided_gather.h"
#include "src/trace/writing/deferred_records.h"
#include "src/trace/writing/record_times.h"

namespace ttrace {
namespace {

// Lines are collected up to this many bytes, and written at the latest when
// their iteration is sealed.
constexpr size_t kLineBufferBytes = 64 * 1024;

// Nor are they kept longer than this while records come, so that the index says
// how far a rank came. Where none come any more, the caller flushes.
using Clock = std::chrono::steady_clock;
constexpr Clock::duration kLineBufferTime = std::chrono::milliseconds(10);

// What a smaller tensor would save is less than a line of the index.
constexpr int64_t kFewestSharedBytes = 4096;

struct HashOfSpec {
  size_t operator()(const RecordSpec& spec) const {
    Hasher hash;
    hash.Add(spec.fqn);
    hash.Add(spec.arg);
    hash.Add(static_cast<uint64_t>(spec.role) << 8 |
             static_cast<uint64_t>(spec.dtype));
    hash.Add(spec.local_shape);
    if (spec.box) {
      for (const BoxDim& dim : *spec.box) {
        hash.Add(static_cast<uint64_t>(dim.begin));
      }
    }
    return hash.Take();
  }
};

class Writer final : public TraceWriter {
 public:
  Writer(RankMeta meta, std::string_view meta_json,
         const std::string& rank_folder, File index,
         std::unique_ptr<Reducer> reducer)
      : meta_(std::move(meta)),
        owner_(::getpid()),
        index_(std::move(index)),
        chain_(meta_json),
        segments_(rank_folder),
        written_(rank_folder),
        compared_(rank_folder),
        aside_(rank_folder),
        reducer_(std::move(reducer)) {}

  ~Writer() override {
    // What was appended is whole, closed or not. In a forked child the buffer
    // is a copy, and its lines belong to the parent.
    if (!failure_ && !closed_ && ::getpid() == owner_) {
      static_cast<void>(WriteAside({}));
      static_cast<void>(WriteLines());
    }
  }

  Status Append(const RecordSpec& spec, const Occurrence& occurrence,
                const StridedView& view) override {
    TTRACE_RETURN_IF_ERROR(Usable());
    RecordFields record;
    Result<std::string> line = Describe(spec, occurrence, record);
    if (line.ok()) {
      const Status readable = CheckView(view, record);
      if (!readable.ok()) line = readable.error();
    }
    if (!line.ok()) return AboutTensor(line.error(), spec, occurrence);
    if (reducer_ != nullptr && reducer_->IsDecidedLater(record)) {
      return FailUnlessOk(PutAside(view, std::move(record)));
    }
    const Status written = WriteWhatIsNew(view, record);
    if (!written.ok()) return Fail(written.error());
    AppendExtent(record, *line);
    if (reducer_ != nullptr) {
      if (reducer_->IsBase(record)) written_.Add(record);
      reducer_->Wrote(record, view, written_);
    }
    return AddRecord(record, *std::move(line));
  }

  std::optional<Reducer::Summarized> SummaryOf(
      const RecordSpec& spec, const Occurrence& occurrence,
      const StridedView& view, const DoParts& parts) const override {
    if (reducer_ == nullptr) return std::nullopt;
    const Result<SpecFacts> facts = CheckSpec(meta_, spec);
    if (!facts.ok()) return std::nullopt;
    const auto record = MakeRecord(meta_, spec, *facts, occurrence);
    if (!record.ok() || !CheckView(view, *record).ok()) return std::nullopt;
    return reducer_->SummarizeAlone(*record, view, parts);
  }

  Status AppendSummary(const RecordSpec& spec, const Occurrence& occurrence,
                       Summary kind,
                       std::span<const std::byte> bytes) override {
    TTRACE_RETURN_IF_ERROR(Usable());
    RecordFields record;
    Result<std::string> line = Describe(spec, occurrence, record);
    if (!line.ok()) return AboutTensor(line.error(), spec, occurrence);
    record.payload = KeptSummary{kind, {}};
    const Status written = WriteSummary(bytes, record);
    if (!written.ok()) return Fail(written.error());
    AppendExtent(record, *line);
    return AddRecord(record, *std::move(line));
  }

  Status Restate(RecordFields* record,
                 std::span<const std::byte> bytes) override {
    TTRACE_RETURN_IF_ERROR(Usable());
    record->sequence = next_sequence_;
    TTRACE_ASSIGN_OR_RETURN(const KnownSpec* const known, Know(record->spec()));
    TTRACE_ASSIGN_OR_RETURN(std::string line,
                            EncodeRecordStart(*record, known->number));
    SetSameAs(std::nullopt, &record->payload);
    const Status written = WriteRestated(bytes, *record);
    if (!written.ok()) return Fail(written.error());
    AppendExtent(*record, line);
    ++next_sequence_;
    Add(std::move(line));
    return Done{};
  }

  Status Note(const std::string& kind,
              const std::string& json_object) override {
    TTRACE_RETURN_IF_ERROR(Usable());
    TTRACE_RETURN_IF_ERROR(AddNote(kind, json_object));
    if (reducer_ != nullptr) reducer_->Noted(kind, json_object);
    return FailUnlessOk(WriteLines());
  }

  Status Flush() override {
    TTRACE_RETURN_IF_ERROR(Usable());
    return FailUnlessOk(WriteLines());
  }

  Status Seal(int iteration, const Leg& leg) override {
    TTRACE_RETURN_IF_ERROR(Usable());
    TTRACE_ASSIGN_OR_RETURN(std::string line, EncodeSeal({iteration, leg}));
    TTRACE_RETURN_IF_ERROR(FailUnlessOk(DecideOn(iteration, leg)));
    TTRACE_RETURN_IF_ERROR(NoteTimes());
    // The seal promises that the bytes are on the disk: they go there first.
    TTRACE_RETURN_IF_ERROR(FailUnlessOk(segments_.Sync()));
    Add(std::move(line));
    TTRACE_RETURN_IF_ERROR(FailUnlessOk(WriteLines()));
    return FailUnlessOk(index_.Sync());
  }

  Status Close(bool complete, const std::string& reason) override {
    TTRACE_RETURN_IF_ERROR(Usable());
    TTRACE_ASSIGN_OR_RETURN(std::string line, EncodeEnd({complete, reason}));
    TTRACE_RETURN_IF_ERROR(FailUnlessOk(WriteAside({})));
    TTRACE_RETURN_IF_ERROR(NoteTimes());
    TTRACE_RETURN_IF_ERROR(FailUnlessOk(segments_.Seal()));
    Add(std::move(line));
    TTRACE_RETURN_IF_ERROR(FailUnlessOk(WriteLines()));
    TTRACE_RETURN_IF_ERROR(FailUnlessOk(index_.Sync()));
    closed_ = true;
    return Done{};
  }

 private:
  Status Usable() const {
    if (failure_) return *failure_;
    if (closed_) return Invalid("this trace is closed");
    if (::getpid() != owner_) return Invalid("this trace is another process's");
    return Done{};
  }

  // A spec of which the index has a line.
  struct KnownSpec {
    int64_t number = 0;
    SpecFacts facts;
  };
  // Checks one that is new, and adds its line.
  Result<const KnownSpec*> Know(const RecordSpec& spec) {
    const auto found = specs_.find(spec);
    if (found != specs_.end()) return &found->second;
    const auto number = static_cast<int64_t>(specs_.size());
    TTRACE_ASSIGN_OR_RETURN(SpecFacts facts, CheckSpec(meta_, spec));
    TTRACE_ASSIGN_OR_RETURN(std::string line, EncodeSpec({number, spec}));
    Add(std::move(line));
    const KnownSpec known = {number, std::move(facts)};
    return &specs_.emplace(spec, known).first->second;
  }

  // Validates a tensor, makes its record and encodes all of its line that does
  // not depend on where the bytes will lie.
  Result<std::string> Describe(const RecordSpec& spec,
                               const Occurrence& occurrence,
                               RecordFields& record) {
    TTRACE_ASSIGN_OR_RETURN(const KnownSpec* const known, Know(spec));
    TTRACE_ASSIGN_OR_RETURN(record,
                            MakeRecord(meta_, spec, known->facts, occurrence));
    record.sequence = next_sequence_;
    return EncodeRecordStart(record, known->number);
  }

  static Status CheckView(const StridedView& view, const RecordFields& record) {
    if (view.strides.size() != record.local_shape.size()) {
      return Invalid(std::to_string(view.strides.size()) + " strides for " +
                     std::to_string(record.local_shape.size()) + " dimensions");
    }
    if (view.data == nullptr && record.extent.bytes > 0) {
      return Invalid("no memory to read from");
    }
    return Done{};
  }

  Error AboutTensor(const Error& error, const RecordSpec& spec,
                    const Occurrence& occurrence) const {
    const TensorId& id = UnresolvedRecord(meta_, spec, occurrence).id;
    return error.WithContext("rank " + std::to_string(meta_.rank) + ": " +
                             Abridged(ToString(id)));
  }

  // The line of a record whose bytes are written.
  Status AddRecord(const RecordFields& record, std::string line) {
    ++next_sequence_;
    Add(std::move(line));
    TTRACE_RETURN_IF_ERROR(KeepTime(record));
    if (lines_.size() < kLineBufferBytes &&
        Clock::now() - flushed_ < kLineBufferTime) {
      return Done{};
    }
    return FailUnlessOk(WriteLines());
  }

  // Records of an unknown time end the run of those before.
  Status KeepTime(const RecordFields& record) {
    if (record.time_us < 0) return NoteTimes();
    times_.Add(record.sequence, record.time_us);
    return times_.full() ? NoteTimes() : Done{};
  }

  Status NoteTimes() {
    if (times_.empty()) return Done{};
    if (!std::exchange(clock_is_noted_, true)) {
      TTRACE_RETURN_IF_ERROR(
          AddNote(std::string(kClockNote), RecordTimes::ClockJson()));
    }
    return AddNote(std::string(kRecordTimesNote), times_.TakeJson());
  }

  // The tensor's bytes, if they are not there yet; of one that only measures
  // another leg, what it differs by.
  Status WriteWhatIsNew(const StridedView& view, RecordFields& record) {
    if (reducer_ == nullptr) return WriteTensor(view, record);
    if (const RecordFields* base = FindBase(record)) {
      TTRACE_ASSIGN_OR_RETURN(const auto reduced,
                              reducer_->Reduce(record, view, *base, written_));
      if (reduced && reduced->equal) {
        Share({base->same_as().value_or(base->sequence), base->extent}, record);
        return Done{};
      }
      if (reduced) {
        record.payload = KeptDifference{base->sequence};
        return WriteBytes(reduced->bytes, record);
      }
    }
    TTRACE_ASSIGN_OR_RETURN(const auto summarized,
                            reducer_->Summarize(record, view));
    if (summarized) {
      record.payload = KeptSummary{summarized->kind, {}};
      return WriteSummary(summarized->bytes, record);
    }
    return WriteValues(view, record);
  }

  Status WriteRestated(std::span<const std::byte> bytes, RecordFields& record) {
    if (std::holds_alternative<KeptSummary>(record.payload)) {
      return WriteSummary(bytes, record);
    }
    if (!record.holds_values()) return WriteBytes(bytes, record);
    const std::vector<int64_t> strides = RowMajorStrides(record.local_shape);
    return WriteValues({bytes.data(), strides}, record);
  }

  // Unless they are there already.
  Status WriteValues(const StridedView& view, RecordFields& record) {
    if (record.extent.bytes < kFewestSharedBytes) {
      return WriteTensor(view, record);
    }
    const uint64_t digest = Digest(view, record);
    const ContentKey key(digest, record.extent.bytes, record.dtype, false);
    const auto found = contents_.find(key);
    if (found != contents_.end()) {
      Share(found->second, record);
      return Done{};
    }
    // What others are measured against is read back: it has to be there.
    if (reducer_ != nullptr && !reducer_->IsBase(record)) {
      if (const RecordFields* run = FindRepeated(record, digest)) {
        record.payload = run->payload;
        Share({run->sequence, run->extent}, record);
        return Done{};
      }
      if (auto compared = reducer_->Compare(record, view, digest)) {
        record.payload = KeptComparison{std::move(compared->legs), {}};
        TTRACE_RETURN_IF_ERROR(WriteBytes(compared->bytes, record));
        Remember(record, digest);
        return Done{};
      }
    }
    TTRACE_RETURN_IF_ERROR(WriteTensor(view, record, digest));
    contents_.emplace(key, Owner{record.sequence, record.extent});
    return Done{};
  }

  // Unless its values are there already.
  Status PutAside(const StridedView& view, RecordFields record) {
    record.extent.xxh3 = Digest(view, record);
    const Extent& extent = record.extent;
    const auto found = contents_.find(
        ContentKey(extent.xxh3, extent.bytes, record.dtype, false));
    if (found != contents_.end()) {
      Share(found->second, record);
      aside_.Hold(std::move(record));
      return Done{};
    }
    StridedGather gather = Gather(view, record);
    TTRACE_RETURN_IF_ERROR(aside_.Begin(std::move(record)));
    for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
      TTRACE_RETURN_IF_ERROR(aside_.Write(tile));
    }
    return Done{};
  }

  // What was set aside of this leg.
  Status DecideOn(int iteration, const Leg& leg) {
    if (aside_.held().empty() || aside_.held().front().record.leg != leg) {
      return Done{};
    }
    Reducer::Decisions decisions =
        reducer_->Decide(iteration, aside_, written_);
    for (const auto& [kind, json_object] : decisions.notes) {
      TTRACE_RETURN_IF_ERROR(AddNote(kind, json_object));
    }
    return WriteAside(std::move(decisions.records));
  }

  // Fewer decisions than records: of the others the values are kept.
  Status WriteAside(std::vector<std::optional<Reducer::Compared>> decisions) {
    decisions.resize(aside_.held().size());
    for (size_t i = 0; i < decisions.size(); ++i) {
      TTRACE_RETURN_IF_ERROR(
          WriteHeld(aside_.held()[i], std::move(decisions[i])));
    }
    aside_.Decided();
    return Done{};
  }

  Status WriteHeld(const DeferredRecords::Held& held,
                   std::optional<Reducer::Compared> compared) {
    RecordFields record = held.record;
    record.sequence = next_sequence_;
    TTRACE_ASSIGN_OR_RETURN(const KnownSpec* const known, Know(record.spec()));
    TTRACE_ASSIGN_OR_RETURN(std::string line,
                            EncodeRecordStart(record, known->number));
    if (compared && !record.same_as()) {
      record.payload = KeptComparison{std::move(compared->legs), {}};
      TTRACE_RETURN_IF_ERROR(WriteBytes(compared->bytes, record));
    } else if (!record.same_as()) {
      TTRACE_RETURN_IF_ERROR(WriteHeldValues(held, record));
    }
    AppendExtent(record, line);
    ++next_sequence_;
    Add(std::move(line));
    return KeepTime(record);
  }

  Status WriteHeldValues(const DeferredRecords::Held& held,
                         RecordFields& record) {
    const uint64_t digest = record.extent.xxh3;
    const int64_t bytes = record.extent.bytes;
    const ContentKey key(digest, bytes, record.dtype, false);
    const auto found = contents_.find(key);
    if (found != contents_.end()) {  // written since it was set aside
      Share(found->second, record);
      return Done{};
    }
    TTRACE_ASSIGN_OR_RETURN(record.extent,
                            segments_.Begin(record.sequence, record.dtype,
                                            record.local_shape, bytes));
    constexpr int64_t kTile = 1 << 20;
    std::vector<std::byte> tile;
    for (int64_t at = 0; at < bytes; at += kTile) {
      tile.resize(static_cast<size_t>(std::min(kTile, bytes - at)));
      TTRACE_RETURN_IF_ERROR(aside_.Read(held, at, tile));
      TTRACE_RETURN_IF_ERROR(segments_.Write(tile));
    }
    record.extent.xxh3 = digest;
    if (bytes >= kFewestSharedBytes) {
      contents_.emplace(key, Owner{record.sequence, record.extent});
    }
    return Done{};
  }

  Status AddNote(const std::string& kind, const std::string& json_object) {
    TTRACE_ASSIGN_OR_RETURN(std::string line, EncodeNote({kind, json_object}));
    Add(std::move(line));
    return Done{};
  }

  // Compared in place, with these values.
  const RecordFields* FindRepeated(const RecordFields& record,
                                   uint64_t digest) const {
    const Leg leg = reducer_->RepeatedBy(record.leg);
    if (leg.empty()) return nullptr;
    const RecordFields* run = compared_.CounterpartOf(record, leg);
    if (run == nullptr || digests_.at(run->sequence) != digest) return nullptr;
    return run;
  }

  void Remember(const RecordFields& record, uint64_t digest) {
    if (compared_.iteration() != record.id.iteration) digests_.clear();
    compared_.Add(record);
    digests_.emplace(record.sequence, digest);
  }

  const RecordFields* FindBase(const RecordFields& record) const {
    if (record.extent.bytes == 0) return nullptr;
    for (const Leg& leg : reducer_->BasesOf(record.leg)) {
      if (const auto* base = written_.CounterpartOf(record, leg)) return base;
    }
    return nullptr;
  }

  static StridedGather Gather(const StridedView& view,
                              const RecordFields& record) {
    return {view.data, record.local_shape, view.strides,
            Info(record.dtype).itemsize};
  }

  static uint64_t Digest(const StridedView& view, const RecordFields& record) {
    StridedGather gather = Gather(view, record);
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
      XXH3_64bits_update(&hash, tile.data(), tile.size());
    }
    return XXH3_64bits_digest(&hash);
  }

  Status WriteBytes(std::span<const std::byte> bytes, RecordFields& record) {
    const auto size = static_cast<int64_t>(bytes.size());
    TTRACE_ASSIGN_OR_RETURN(
        record.extent,
        segments_.Begin(record.sequence, DType::kU8, {size}, size));
    record.extent.xxh3 = XXH3_64bits(bytes.data(), bytes.size());
    return segments_.Write(bytes);
  }

  Status WriteSummary(std::span<const std::byte> bytes, RecordFields& record) {
    const auto size = static_cast<int64_t>(bytes.size());
    if (size < kFewestSharedBytes) return WriteBytes(bytes, record);
    const ContentKey key(XXH3_64bits(bytes.data(), bytes.size()), size,
                         record.dtype, true);
    const auto found = contents_.find(key);
    if (found != contents_.end()) {
      Share(found->second, record);
      return Done{};
    }
    TTRACE_RETURN_IF_ERROR(WriteBytes(bytes, record));
    contents_.emplace(key, Owner{record.sequence, record.extent});
    return Done{};
  }

  // `digest`: of its bytes, where it is known.
  Status WriteTensor(const StridedView& view, RecordFields& record,
                     std::optional<uint64_t> digest = std::nullopt) {
    TTRACE_ASSIGN_OR_RETURN(
        record.extent,
        segments_.Begin(record.sequence, record.dtype, record.local_shape,
                        record.extent.bytes));
    StridedGather gather = Gather(view, record);
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
      if (!digest) XXH3_64bits_update(&hash, tile.data(), tile.size());
      TTRACE_RETURN_IF_ERROR(segments_.Write(tile));
    }
    record.extent.xxh3 = digest ? *digest : XXH3_64bits_digest(&hash);
    return Done{};
  }

  void Add(std::string line) {
    if (meta_.chained) chain_.Add(line);
    lines_ += line;
  }

  // Writes the collected lines, whose bytes are all in their segments.
  Status WriteLines() {
    TTRACE_RETURN_IF_ERROR(
        index_.WriteAt(std::as_bytes(std::span(lines_)), index_bytes_));
    index_bytes_ += static_cast<int64_t>(lines_.size());
    lines_.clear();
    flushed_ = Clock::now();
    return Done{};
  }

  // Makes `error` the answer to every later call. Says so in the index if the
  // system still lets it: a full disk often has room in the last block.
  Error Fail(const Error& error) {
    failure_ = error.WithContext("rank " + std::to_string(meta_.rank));
    Result<std::string> line = EncodeEnd({false, failure_->message()});
    if (line.ok()) Add(*std::move(line));
    static_cast<void>(WriteLines());
    return *failure_;
  }

  Status FailUnlessOk(const Status& status) {
    if (status.ok()) return Done{};
    return Fail(status.error());
  }

  const RankMeta meta_;
  const pid_t owner_;
  File index_;
  int64_t index_bytes_ = 0;
  IndexChain chain_;
  SegmentWriter segments_;
  std::unordered_map<RecordSpec, KnownSpec, HashOfSpec> specs_;
  WrittenRecords written_;   // of legs that others may be measured against
  WrittenRecords compared_;  // in place, with the reference
  DeferredRecords aside_;
  std::map<int64_t, uint64_t> digests_;  // of their values, by sequence
  // Bytes that are there, by digest, size and dtype. That two of a run's
  // tensors have one digest by chance is as likely as that damage goes unseen.
  // The last: whether they are a summary.
  using ContentKey = std::tuple<uint64_t, int64_t, DType, bool>;
  struct Owner {
    int64_t sequence = 0;
    Extent extent;
  };
  static void Share(const Owner& owner, RecordFields& record) {
    SetSameAs(owner.sequence, &record.payload);
    record.extent = owner.extent;
  }
  std::map<ContentKey, Owner> contents_;
  std::unique_ptr<Reducer> reducer_;
  int64_t next_sequence_ = 0;
  RecordTimes times_;
  bool clock_is_noted_ = false;
  Clock::time_point flushed_ = Clock::now();
  std::string lines_;
  std::optional<Error> failure_;
  bool closed_ = false;
};

// Creates the folder of the rank's next start. mkdir is atomic, so that two
// processes never share one.
Result<std::string> CreateRankFolder(const std::string& folder, int rank) {
  for (int restart = 0; restart < kMaxRestarts; ++restart) {
    std::string path = folder + "/" + RankFolderName({rank, restart});
    if (::mkdir(path.c_str(), 0755) == 0) return path;
    if (errno != EEXIST) {
      return Error(ErrorCode::kIo, "cannot create '" + path + "': " +
                                       std::generic_category().message(errno));
    }
  }
  return Error(ErrorCode::kIo, "too many restarts in '" + folder + "'");
}

Result<std::unique_ptr<TraceWriter>> OpenWriter(
    const std::string& folder, const RankMeta& meta,
    std::unique_ptr<Reducer> reducer) {
  TTRACE_RETURN_IF_ERROR(CheckRankMeta(meta));
  TTRACE_ASSIGN_OR_RETURN(const std::string json, EncodeRankMeta(meta));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Error(ErrorCode::kIo, "'" + folder + "': " + error.message());
  }
  TTRACE_ASSIGN_OR_RETURN(const std::string path,
                          CreateRankFolder(folder, meta.rank));
  // meta.json comes last: a folder that has it has an index, too.
  TTRACE_ASSIGN_OR_RETURN(File index,
                          File::Create(path + "/" + std::string(kIndexFile)));
  TTRACE_RETURN_IF_ERROR(
      WriteFileAtomically(path + "/" + std::string(kMetaFile), json));
  std::unique_ptr<TraceWriter> writer = std::make_unique<Writer>(
      meta, json, path, std::move(index), std::move(reducer));
  return writer;
}

}  // namespace

Result<std::unique_ptr<TraceWriter>> TraceWriter::Open(
    const std::string& folder, const RankMeta& meta) {
  return Open(folder, meta, nullptr);
}

Result<std::unique_ptr<TraceWriter>> TraceWriter::Open(
    const std::string& folder, const RankMeta& meta,
    std::unique_ptr<Reducer> reducer) {
  Result<std::unique_ptr<TraceWriter>> writer =
      OpenWriter(folder, meta, std::move(reducer));
  if (!writer.ok()) {
    return writer.error().WithContext("rank " + std::to_string(meta.rank));
  }
  return writer;
}

}  // namespace ttrace
