#include "src/in_place/condense_trace.h"

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "src/compare/cells/cell_sums.h"
#include "src/compare/cells/compare_cells.h"
#include "src/experiment/graft_source.h"
#include "src/experiment/leg_names.h"
#include "src/in_place/summarizer.h"
#include "src/trace/format.h"
#include "src/trace/note_json.h"
#include "src/trace/reader.h"
#include "src/trace/writer.h"
#include "src/trace/writing/record_times.h"

namespace ttrace {
namespace {

Status CheckComplete(const Trace& trace) {
  if (!trace.missing_ranks().empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 trace.folder() + ": rank " +
                     std::to_string(trace.missing_ranks().front()) +
                     " is missing");
  }
  for (const RankTrace& rank : trace.ranks()) {
    if (rank.complete) continue;
    return Error(
        ErrorCode::kInvalidArgument,
        trace.folder() + ": rank " + std::to_string(rank.meta.rank) +
            " is not complete" +
            (rank.incomplete_reason.empty() ? ""
                                            : ": " + rank.incomplete_reason));
  }
  return Done{};
}

// One rank of one trace folder.
class RankCondenser {
 public:
  RankCondenser(const Trace& trace, size_t buckets, TraceWriter* writer,
                Condensed* counts)
      : trace_(trace),
        buckets_(buckets),
        summarizer_(MakeSummarizer(buckets)),
        writer_(*writer),
        counts_(*counts) {}

  Status Add(const Record& record) {
    if (record.leg().is_isolated()) return Done{};
    RecordFields out = record.fields();
    SetSameAs(std::nullopt, &out.payload);
    TTRACE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                            WhatIsKept(record, &out));
    TTRACE_RETURN_IF_ERROR(writer_.Restate(&out, bytes));
    sequences_.emplace(record.sequence(), out.sequence);
    if (!record.leg().is_noise()) {
      runs_[{record.leg(), record.id()}].pieces.push_back(record);
    }
    ++counts_.records;
    counts_.summaries += std::holds_alternative<KeptSummary>(out.payload);
    counts_.bytes_before += record.same_as() ? 0 : record.extent().bytes;
    counts_.bytes_after += out.same_as() ? 0 : out.extent.bytes;
    return Done{};
  }

 private:
  Result<std::vector<std::byte>> WhatIsKept(const Record& record,
                                            RecordFields* out) {
    if (record.leg().is_noise()) {
      TTRACE_ASSIGN_OR_RETURN(auto difference, Difference(record, out));
      if (difference) return *std::move(difference);
    }
    if (!record.holds_values()) {
      TTRACE_ASSIGN_OR_RETURN(auto bytes, trace_.ReadInstead(record));
      if (auto* measured = std::get_if<KeptDifference>(&out->payload)) {
        measured->against = sequences_.at(measured->against);
      }
      return bytes;
    }
    std::vector<std::byte> values(static_cast<size_t>(record.extent().bytes));
    TTRACE_RETURN_IF_ERROR(trace_.Read(record, 0, values));
    const std::vector<int64_t> strides = RowMajorStrides(record.local_shape());
    TTRACE_ASSIGN_OR_RETURN(
        auto summary, summarizer_->Summarize(*out, {values.data(), strides}));
    if (!summary) return values;
    out->payload = KeptSummary{summary->kind, {}};
    return std::move(summary->bytes);
  }

  // Of a noise rerun, where that of the run is not kept.
  Result<std::optional<std::vector<std::byte>>> Difference(const Record& rerun,
                                                           RecordFields* out) {
    using Bytes = std::optional<std::vector<std::byte>>;
    const std::optional<Record> run = RunOf(rerun);
    if (!run || !run->holds_values() ||
        !MayBeSummarized(run->fields(), buckets_)) {
      return Bytes();
    }
    TTRACE_ASSIGN_OR_RETURN(const auto table,
                            CompareAsOneCell(trace_, *run, rerun));
    if (!table) return Bytes();
    out->payload = KeptDifference{sequences_.at(run->sequence())};
    return Bytes(EncodeCells(*table));
  }

  // What a noise rerun is compared with, if that is known.
  std::optional<Record> RunOf(const Record& rerun) const {
    if (rerun.measured()) {
      return trace_.records().Find(rerun.rank(), rerun.measured()->against);
    }
    for (const Leg& leg : rerun.leg().Perturbed()) {
      const auto found = runs_.find({leg, rerun.id()});
      if (found == runs_.end()) continue;
      if (const auto run = CounterpartOf(found->second, rerun)) return run;
    }
    return std::nullopt;
  }

  const Trace& trace_;
  size_t buckets_;
  std::unique_ptr<Reducer> summarizer_;
  TraceWriter& writer_;
  Condensed& counts_;
  std::map<int64_t, int64_t> sequences_;  // of records that were written
  std::map<std::pair<Leg, TensorId>, TensorPieces> runs_;  // by leg
};

Status CondenseRank(const Trace& trace, const RankTrace& rank,
                    const CondenseOptions& options, int64_t total,
                    Condensed* counts) {
  TTRACE_ASSIGN_OR_RETURN(const std::unique_ptr<TraceWriter> writer,
                          TraceWriter::Open(options.to, rank.meta));
  for (const Note& note : rank.notes) {
    // Of sequences that the records do not keep.
    if (note.kind == kRecordTimesNote) continue;
    TTRACE_RETURN_IF_ERROR(writer->Note(note.kind, note.json));
  }
  RankCondenser condenser(trace, options.buckets, writer.get(), counts);
  for (const Record& record : trace.records()) {
    if (record.rank() != rank.meta.rank) continue;
    TTRACE_RETURN_IF_ERROR(condenser.Add(record));
    if (options.progress && counts->records % 100 == 0) {
      options.progress(counts->records, total);
    }
  }
  for (const auto& [iteration, leg] : rank.sealed) {
    if (leg.is_isolated()) continue;
    TTRACE_RETURN_IF_ERROR(writer->Seal(iteration, leg));
  }
  return writer->Close(rank.complete, rank.incomplete_reason);
}

// `values`: DigestOfGraftSource of all folders.
Status CondenseFolder(const Trace& trace, const CondenseOptions& options,
                      const std::string& values, Condensed* counts) {
  TTRACE_RETURN_IF_ERROR(CheckComplete(trace));
  auto manifest = ParseJson(trace.manifest_json());
  manifest["condensed"] = {{"buckets", options.buckets}, {"values", values}};
  TTRACE_RETURN_IF_ERROR(
      CreateTraceFolder(options.to, JsonText(manifest), false));
  const auto total = static_cast<int64_t>(trace.records().size());
  for (const RankTrace& rank : trace.ranks()) {
    TTRACE_RETURN_IF_ERROR(CondenseRank(trace, rank, options, total, counts));
  }
  return Done{};
}

}  // namespace

Result<Condensed> CondenseTrace(const CondenseOptions& options) {
  std::vector<CondenseOptions> folders = {options};
  for (const std::string& folder : FindLegFolders(options.from)) {
    const Leg leg(std::filesystem::path(folder).filename().string());
    if (leg.is_isolated()) continue;
    CondenseOptions of_leg = options;
    of_leg.from = folder;
    of_leg.to = LegFolder(options.to, leg);
    folders.push_back(std::move(of_leg));
  }
  std::vector<std::shared_ptr<const Trace>> opened;
  std::vector<const Trace*> traces;
  for (const CondenseOptions& folder : folders) {
    TTRACE_ASSIGN_OR_RETURN(auto trace, Trace::Open(folder.from));
    traces.push_back(trace.get());
    opened.push_back(std::move(trace));
  }
  const std::string values = DigestOfGraftSource(traces);
  Condensed counts;
  for (size_t i = 0; i < folders.size(); ++i) {
    TTRACE_RETURN_IF_ERROR(
        CondenseFolder(*traces[i], folders[i], values, &counts));
  }
  return counts;
}

}  // namespace ttrace
