#include "src/trace/rank_reader.h"

#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "src/trace/file.h"
#include "src/trace/format.h"
#include "src/trace/index/index_chain.h"
#include "src/trace/index/index_line.h"
#include "src/trace/index/line_reader.h"
#include "src/trace/index/plain_line.h"
#include "src/trace/index/plain_records.h"
#include "src/trace/rank_meta.h"
#include "src/trace/segments/segment_check.h"

namespace ttrace {
namespace {

class IndexReader {
 public:
  IndexReader(const std::string& folder, std::string_view meta_json,
              RankContents& contents)
      : folder_(folder),
        trace_(contents.trace),
        records_(contents.records),
        decoder_(trace_.meta),
        plain_(trace_.meta, decoder_.specs(), &records_),
        chain_(meta_json) {}

  Status Read() {
    const std::string path = folder_ + "/" + std::string(kIndexFile);
    Result<File> file = File::Open(path);
    if (!file.ok()) {
      // meta.json was written after the index was created.
      return Corrupt(file.error().message());
    }
    LineReader lines(*std::move(file));
    while (true) {
      const auto line = lines.Next();
      const Status status =
          !line.ok() ? Status(line.error())
                     : (*line ? Take(**line, lines.line_number()) : Done{});
      if (!status.ok()) {
        return status.error().WithContext(path + ": line " +
                                          std::to_string(lines.line_number()));
      }
      if (!*line) break;
    }
    if (lines.has_cut_line()) {
      if (trace_.closed) {
        return Corrupt(path + ": bytes after the end line");
      }
      trace_.dropped_lines = 1;
    }
    return CheckExtents(path);
  }

 private:
  Status Take(std::string_view text, int64_t number) {
    if (trace_.closed) return Corrupt("a line after the end line");
    if (!trace_.meta.chained) return TakeAny(text, number);
    if (const auto row = plain_.Read(text)) {
      TTRACE_RETURN_IF_ERROR(chain_.Check(text));
      records_.Append(row->parts, row->own);
      line_numbers_.push_back(number);
      return Done{};
    }
    const std::optional<PlainSpecLine> spec = ReadPlainSpecLine(text);
    if (spec && decoder_.specs().AddAlike(*spec)) return chain_.Check(text);
    TTRACE_RETURN_IF_ERROR(TakeAny(text, number));
    if (spec) decoder_.specs().NameLast(*spec);
    return Done{};
  }

  Status TakeAny(std::string_view text, int64_t number) {
    // Decoded first: what is wrong with a line says more than that it is wrong.
    TTRACE_ASSIGN_OR_RETURN(IndexLine line, decoder_.DecodePadded(text));
    if (trace_.meta.chained) {
      TTRACE_RETURN_IF_ERROR(chain_.Check(text));
    } else if (IndexChain::EndsWithKey(text)) {
      return Corrupt(
          "a line with a checksum, of which meta.json knows nothing");
    }
    if (const auto* record = std::get_if<RecordFields>(&line)) {
      if (!records_.empty() && record->sequence <= records_.back().sequence()) {
        return Corrupt("sequence " + std::to_string(record->sequence) +
                       " after " + std::to_string(records_.back().sequence()));
      }
      TTRACE_RETURN_IF_ERROR(CheckOrigin(*record));
      if (records_.size() == RecordTable::kMaxRecords) {
        return Error(ErrorCode::kUnsupported,
                     "more records than can be numbered");
      }
      records_.Append(*record);
      line_numbers_.push_back(number);
    } else if (std::holds_alternative<SpecLine>(line)) {
      // The decoder keeps it.
    } else if (NoteLine* note = std::get_if<NoteLine>(&line)) {
      trace_.notes.push_back(
          {trace_.meta.rank, std::move(note->kind), std::move(note->json)});
    } else if (SealLine* seal = std::get_if<SealLine>(&line)) {
      trace_.sealed.emplace_back(seal->iteration, std::move(seal->leg));
      sealed_records_ = records_.size();
    } else if (EndLine* end = std::get_if<EndLine>(&line)) {
      trace_.closed = true;
      trace_.complete = end->complete;
      trace_.incomplete_reason = std::move(end->reason);
      sealed_records_ = records_.size();
    }
    return Done{};
  }

  static bool IsOwner(const Record& earlier, const RecordFields& record) {
    return !earlier.same_as() && earlier.extent() == record.extent &&
           earlier.payload() == WithoutOrigin(record.payload);
  }
  static bool IsBase(const Record& earlier, const RecordFields& record) {
    return earlier.compared_with().empty() && earlier.id() == record.id &&
           earlier.layout() == record.layout;
  }

  // What a record stands for, or was measured against, came before it.
  Status CheckOrigin(const RecordFields& record) const {
    const std::optional<int64_t> wanted = OriginOf(record.payload);
    if (!wanted) return Done{};
    const std::optional<Record> found = records_.Find(record.rank, *wanted);
    if (!found || found->measured() || found->dtype() != record.dtype ||
        !(record.same_as() ? IsOwner(*found, record)
                           : IsBase(*found, record))) {
      return Corrupt("record " + std::to_string(record.sequence) +
                     " refers to " + std::to_string(*wanted) +
                     ", which is no such record before it");
    }
    return Done{};
  }

  // Whether the record's bytes are all in its segment.
  Result<bool> IsInside(const Record& record) {
    const Extent extent = record.extent();
    if (extent.bytes == 0) return true;
    auto it = sizes_.find(extent.segment);
    if (it == sizes_.end()) {
      int64_t size = 0;
      const Result<File> file =
          File::Open(folder_ + "/" + SegmentFileName(extent.segment));
      if (file.ok()) {
        TTRACE_ASSIGN_OR_RETURN(size, file->Size());
      } else if (file.error().code() != ErrorCode::kNotFound) {
        return file.error();
      }
      it = sizes_.emplace(extent.segment, size).first;
    }
    return extent.offset <= it->second &&
           extent.bytes <= it->second - extent.offset;
  }

  // A crash may lose the end of a segment, and with it the last records that
  // were not sealed: those are dropped. Anything else that is missing was
  // removed by somebody.
  Status CheckExtents(const std::string& index_path) {
    size_t kept = records_.size();
    bool may_drop = true;
    for (size_t i = records_.size(); i-- > 0;) {
      if (i < sealed_records_) may_drop = false;
      TTRACE_ASSIGN_OR_RETURN(const bool inside, IsInside(records_[i]));
      if (inside) {
        // Bytes that an earlier record has say nothing of the last ones.
        if (records_[i].extent().bytes > 0 && !records_[i].same_as()) {
          may_drop = false;
        }
        continue;
      }
      if (!may_drop) {
        return Corrupt(index_path + ": line " +
                       std::to_string(line_numbers_[i]) + ": tensor '" +
                       Abridged(ToString(records_[i].id())) + "' ends behind " +
                       SegmentFileName(records_[i].extent().segment));
      }
      kept = i;
    }
    trace_.dropped_lines += static_cast<int64_t>(records_.size() - kept);
    records_.Truncate(kept);
    return Done{};
  }

  const std::string& folder_;
  RankTrace& trace_;
  RecordTable& records_;
  IndexLineDecoder decoder_;
  PlainRecords plain_;
  IndexChain chain_;
  std::vector<int64_t> line_numbers_;  // parallel to the records
  std::map<int, int64_t> sizes_;       // of segments
  size_t sealed_records_ = 0;          // records before the last seal
};

}  // namespace

Result<std::unique_ptr<RankContents>> ReadRank(const std::string& folder,
                                               int rank) {
  const std::string meta_path = folder + "/" + std::string(kMetaFile);
  TTRACE_ASSIGN_OR_RETURN(const std::string json,
                          ReadWholeFile(meta_path, kMaxJsonFileBytes));
  Result<RankMeta> meta = DecodeRankMeta(json);
  if (!meta.ok()) return meta.error().WithContext(meta_path);
  if (meta->rank != rank) {
    return Corrupt(meta_path + ": is of rank " + std::to_string(meta->rank));
  }

  auto contents = std::make_unique<RankContents>();
  RankTrace& trace = contents->trace;
  trace.meta = *std::move(meta);
  trace.folder = folder;
  trace.incomplete_reason = "the process ended before it closed its trace";
  TTRACE_RETURN_IF_ERROR(IndexReader(folder, json, *contents).Read());
  // A rank that gave up may have left its last segment without a header.
  if (trace.complete) {
    TTRACE_RETURN_IF_ERROR(CheckSegments(folder, contents->records));
  }
  return contents;
}

}  // namespace ttrace
