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

// One rank, of the trace of its run and of those of its reruns.
class RankCondenser {
 public:
  RankCondenser(size_t buckets, TraceWriter* writer, Condensed* counts)
      : buckets_(buckets),
        summarizer_(MakeSummarizer(buckets)),
        writer_(*writer),
        counts_(*counts) {}

  // REQUIRES: what a rerun is measured against was added before it.
  Status Add(const Trace& trace, const Record& record) {
    if (record.leg().is_isolated()) return Done{};
    RecordFields out = record.fields();
    SetSameAs(std::nullopt, &out.payload);
    TTRACE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                            WhatIsKept(trace, record, &out));
    TTRACE_RETURN_IF_ERROR(writer_.Restate(&out, bytes));
    sequences_.emplace(std::pair(&trace, record.sequence()), out.sequence);
    if (!record.leg().is_noise()) {
      TensorPieces& run = runs_[{record.leg(), record.id()}];
      run.trace = &trace;
      run.pieces.push_back(record);
    }
    ++counts_.records;
    counts_.summaries += std::holds_alternative<KeptSummary>(out.payload);
    counts_.bytes_before += record.same_as() ? 0 : record.extent().bytes;
    counts_.bytes_after += out.same_as() ? 0 : out.extent.bytes;
    return Done{};
  }

 private:
  // A record, and the trace that holds it.
  struct Found {
    const Trace* trace = nullptr;
    Record record;
  };

  Result<std::vector<std::byte>> WhatIsKept(const Trace& trace,
                                            const Record& record,
                                            RecordFields* out) {
    if (record.leg().is_noise()) {
      TTRACE_ASSIGN_OR_RETURN(auto difference, Difference(trace, record, out));
      if (difference) return *std::move(difference);
    }
    if (!record.holds_values()) {
      TTRACE_ASSIGN_OR_RETURN(auto bytes, trace.ReadInstead(record));
      if (auto* measured = std::get_if<KeptDifference>(&out->payload)) {
        measured->against = sequences_.at({&trace, measured->against});
      }
      return bytes;
    }
    std::vector<std::byte> values(static_cast<size_t>(record.extent().bytes));
    TTRACE_RETURN_IF_ERROR(trace.Read(record, 0, values));
    const std::vector<int64_t> strides = RowMajorStrides(record.local_shape());
    TTRACE_ASSIGN_OR_RETURN(
        auto summary, summarizer_->Summarize(*out, {values.data(), strides}));
    if (!summary) return values;
    out->payload = KeptSummary{summary->kind, {}};
    return std::move(summary->bytes);
  }

  // Of a noise rerun, where that of the run is not kept.
  Result<std::optional<std::vector<std::byte>>> Difference(const Trace& trace,
                                                           const Record& rerun,
                                                           RecordFields* out) {
    using Bytes = std::optional<std::vector<std::byte>>;
    const std::optional<Found> run = RunOf(trace, rerun);
    if (!run || !run->record.holds_values() ||
        !MayBeSummarized(run->record.fields(), buckets_)) {
      return Bytes();
    }
    TTRACE_ASSIGN_OR_RETURN(
        const auto table,
        CompareAsOneCell(*run->trace, run->record, trace, rerun));
    if (!table) return Bytes();
    out->payload =
        KeptDifference{sequences_.at({run->trace, run->record.sequence()})};
    return Bytes(EncodeCells(*table));
  }

  // What a noise rerun is compared with, if that is known.
  std::optional<Found> RunOf(const Trace& trace, const Record& rerun) const {
    if (rerun.measured()) {
      const std::optional<Record> run =
          trace.records().Find(rerun.rank(), rerun.measured()->against);
      if (!run) return std::nullopt;
      return Found{&trace, *run};
    }
    for (const Leg& leg : rerun.leg().Perturbed()) {
      const auto found = runs_.find({leg, rerun.id()});
      if (found == runs_.end()) continue;
      if (const auto run = CounterpartOf(found->second, rerun)) {
        return Found{found->second.trace, *run};
      }
    }
    return std::nullopt;
  }

  size_t buckets_;
  std::unique_ptr<Reducer> summarizer_;
  TraceWriter& writer_;
  Condensed& counts_;
  // Of records that were written, by where they were.
  std::map<std::pair<const Trace*, int64_t>, int64_t> sequences_;
  std::map<std::pair<Leg, TensorId>, TensorPieces> runs_;  // by leg
};

// The run, and reruns that were launches of their own.
using Folders = std::vector<std::shared_ptr<const Trace>>;

int64_t RecordsOf(const Folders& folders) {
  int64_t total = 0;
  for (const auto& trace : folders) {
    total += static_cast<int64_t>(trace->records().size());
  }
  return total;
}

const RankTrace* FindRank(const Trace& trace, int rank) {
  for (const RankTrace& one : trace.ranks()) {
    if (one.meta.rank == rank) return &one;
  }
  return nullptr;
}

Status CondenseRank(const Folders& folders, const RankTrace& rank,
                    const CondenseOptions& options, Condensed* counts) {
  TTRACE_ASSIGN_OR_RETURN(const std::unique_ptr<TraceWriter> writer,
                          TraceWriter::Open(options.to, rank.meta));
  for (const Note& note : rank.notes) {
    // Of sequences that the records do not keep.
    if (note.kind == kRecordTimesNote) continue;
    TTRACE_RETURN_IF_ERROR(writer->Note(note.kind, note.json));
  }
  const int64_t total = RecordsOf(folders);
  RankCondenser condenser(options.buckets, writer.get(), counts);
  for (const auto& trace : folders) {
    for (const Record& record : trace->records()) {
      if (record.rank() != rank.meta.rank) continue;
      TTRACE_RETURN_IF_ERROR(condenser.Add(*trace, record));
      if (options.progress && counts->records % 100 == 0) {
        options.progress(counts->records, total);
      }
    }
  }
  for (const auto& trace : folders) {
    const RankTrace* of = FindRank(*trace, rank.meta.rank);
    if (of == nullptr) continue;
    for (const auto& [iteration, leg] : of->sealed) {
      if (leg.is_isolated()) continue;
      TTRACE_RETURN_IF_ERROR(writer->Seal(iteration, leg));
    }
  }
  return writer->Close(rank.complete, rank.incomplete_reason);
}

// A rerun is laid beside its run rank by rank.
Status CheckSameRanks(const Trace& run, const Trace& rerun) {
  if (run.world_size() == rerun.world_size() && run.mesh() == rerun.mesh()) {
    return Done{};
  }
  return Error(ErrorCode::kInvalidArgument,
               rerun.folder() + ": its ranks do not lie as those of " +
                   run.folder() + ", which it is a rerun of");
}

Result<Folders> OpenFolders(const std::string& from) {
  const std::vector<std::string> folders = FindLegFolders(from);
  std::vector<std::string> names = {from};
  // What is perturbed comes before its noise.
  for (const bool noise : {false, true}) {
    for (const std::string& folder : folders) {
      const Leg leg(std::filesystem::path(folder).filename().string());
      if (leg.is_noise() == noise && !leg.is_isolated()) {
        names.push_back(folder);
      }
    }
  }
  Folders out;
  for (const std::string& folder : names) {
    TTRACE_ASSIGN_OR_RETURN(auto trace, Trace::Open(folder));
    TTRACE_RETURN_IF_ERROR(CheckComplete(*trace));
    if (!out.empty()) {
      TTRACE_RETURN_IF_ERROR(CheckSameRanks(*out.front(), *trace));
    }
    out.push_back(std::move(trace));
  }
  return out;
}

}  // namespace

Result<Condensed> CondenseTrace(const CondenseOptions& options) {
  TTRACE_ASSIGN_OR_RETURN(const Folders folders, OpenFolders(options.from));
  std::vector<const Trace*> traces;
  for (const auto& trace : folders) traces.push_back(trace.get());
  auto manifest = ParseJson(folders.front()->manifest_json());
  manifest["condensed"] = {{"buckets", options.buckets},
                           {"values", DigestOfGraftSource(traces)}};
  TTRACE_RETURN_IF_ERROR(
      CreateTraceFolder(options.to, JsonText(manifest), false));
  Condensed counts;
  for (const RankTrace& rank : folders.front()->ranks()) {
    TTRACE_RETURN_IF_ERROR(CondenseRank(folders, rank, options, &counts));
  }
  return counts;
}

}  // namespace ttrace
