// TraceWriter: one rank's append-only trace.
//
// Bytes are written before the index line that names them, lines are whole, and
// an iteration is sealed with fdatasync; so whatever moment a process dies,
// what the index names is readable. Writing is by pwrite into files that are
// never read back. The first failure is sticky: later calls return it again
// and write nothing, so that capture can turn itself off. A file size limit
// gives an Error like a full disk: SIGXFSZ is held back around every write.
// After a fork the child's copy refuses every call.
//
// Thread safety: one thread at a time.

#ifndef TTRACE_SRC_TRACE_WRITER_H_
#define TTRACE_SRC_TRACE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/parts.h"
#include "src/trace/record_fields.h"
#include "src/trace/writing/deferred_records.h"
#include "src/trace/writing/written_records.h"
#include "ttrace/leg.h"
#include "ttrace/status.h"

namespace ttrace {

// A grid in which the ranks of a run lie, and one rank's place in it.
struct MeshView {
  DeviceMesh mesh;
  Coordinate coordinate;
  bool operator==(const MeshView&) const = default;
};

// What a rank knows when its capture starts. Becomes meta.json.
struct RankMeta {
  int rank = 0;
  int world_size = 1;
  DeviceMesh mesh;
  Coordinate coordinate;
  // Other grids of the same ranks, no refinements of `mesh` in general: experts
  // lie in (pp, edp, ep, etp) where all else lies in (pp, dp, cp, tp). The same
  // on all ranks. A record names dimensions of one grid.
  std::vector<MeshView> views;
  // A JSON object with whatever the adapter wants to keep: framework, versions,
  // topology, configuration, probes that answered. Kept, without white space.
  std::string adapter_json = "{}";
  // The same for all ranks of one run, so that a reader can tell when folders
  // of two runs were mixed. May stay empty.
  std::string run_id;
  // Lines of the index carry a running checksum. Every writer's do; false is
  // what a reader finds in traces from before it.
  bool chained = true;

  // The grids by number: 0 is `mesh`, and k is views[k - 1].
  // REQUIRES: 0 <= grid <= views.size()
  const DeviceMesh& MeshOf(int grid) const {
    return grid == 0 ? mesh : views[static_cast<size_t>(grid - 1)].mesh;
  }
  const Coordinate& CoordinateIn(int grid) const {
    return grid == 0 ? coordinate
                     : views[static_cast<size_t>(grid - 1)].coordinate;
  }
};

// A tensor in this process's memory. Strides are in elements and may be
// anything (zero and negative included).
struct StridedView {
  const std::byte* data = nullptr;
  std::span<const int64_t> strides;
};

// What is kept instead of values.
//
// Thread safety: one thread, that of its writer.
class Reducer {
 public:
  virtual ~Reducer() = default;

  // The legs of whose values those of `leg` may be measured instead of kept,
  // the best first. None: they are kept.
  virtual std::vector<Leg> BasesOf(const Leg& leg) const = 0;

  // Whether a rerun may be measured against `record`, which is then kept in
  // mind until the next iteration.
  virtual bool IsBase(const RecordFields& record) const = 0;

  struct Reduced {
    bool equal = false;            // bit by bit
    std::vector<std::byte> bytes;  // else: what they differ by
  };
  // What `values`, of `record`, are against `base`, which was written before.
  // Nothing: the values themselves are wanted, or their summary.
  virtual Result<std::optional<Reduced>> Reduce(const RecordFields& record,
                                                const StridedView& values,
                                                const RecordFields& base,
                                                WrittenRecords& written) = 0;

  struct Summarized {
    Summary kind;
    std::vector<std::byte> bytes;  // fewer than the values have
  };
  // What is kept of `values`, of `record`. Nothing: they themselves.
  virtual Result<std::optional<Summarized>> Summarize(
      const RecordFields& record, const StridedView& values) = 0;

  // The same where it follows from `record` and `values` alone, and nothing
  // else is ever made of such a record; else nothing. Any thread may ask,
  // whatever others do. `parts`: has work done.
  virtual std::optional<Summarized> SummarizeAlone(
      const RecordFields& /*record*/, const StridedView& /*values*/,
      const DoParts& /*parts*/) const {
    return std::nullopt;
  }

  struct Compared {
    ComparedWith legs;             // of another run
    std::vector<std::byte> bytes;  // fewer than the values have
  };
  // What `values`, of `record` and with this checksum, are beside those of
  // another run. Nothing: they themselves are kept.
  virtual std::optional<Compared> Compare(const RecordFields& /*record*/,
                                          const StridedView& /*values*/,
                                          uint64_t /*xxh3*/) {
    return std::nullopt;
  }

  // Whether what becomes of `record` is decided when its leg is sealed. Until
  // then its line is not written: what is lost with a process that is killed
  // before are such records of one iteration.
  virtual bool IsDecidedLater(const RecordFields& /*record*/) const {
    return false;
  }
  // Told of all that is written, in its order: of a record with its extent and
  // the values that it is of, of which `written` has those of IsBase.
  virtual void Wrote(const RecordFields& /*record*/,
                     const StridedView& /*values*/,
                     const WrittenRecords& /*written*/) {}
  virtual void Noted(const std::string& /*kind*/,
                     const std::string& /*json_object*/) {}
  struct Decisions {
    // Of DeferredRecords::held(), in its order. Nothing: the values are kept.
    std::vector<std::optional<Compared>> records;
    // To be written before them: kind and JSON object.
    std::vector<std::pair<std::string, std::string>> notes;
  };
  // What is to become of what was set aside in `iteration`. `written` reads
  // records that lie in segments.
  virtual Decisions Decide(int /*iteration*/, const DeferredRecords& /*aside*/,
                           WrittenRecords& /*written*/) {
    return {};
  }

  // The leg that `leg` repeats, as far as it is compared with the same: what of
  // it is the same bit by bit is not compared again. Empty: none.
  virtual Leg RepeatedBy(const Leg& /*leg*/) const { return {}; }
};

class TraceWriter {
 public:
  // Creates `<folder>/rank-00003.r0` (or the next free ".rN": a restarted job
  // writes beside, never over) with meta.json and an empty index.
  static Result<std::unique_ptr<TraceWriter>> Open(const std::string& folder,
                                                   const RankMeta& meta);
  // With a reducer, values are written once that several tensors have in common
  // bit by bit, and of some legs only what `reducer` makes of them.
  static Result<std::unique_ptr<TraceWriter>> Open(
      const std::string& folder, const RankMeta& meta,
      std::unique_ptr<Reducer> reducer);
  virtual ~TraceWriter() = default;

  // Writes one tensor and its index line. `view` has spec.local_shape.
  // Fails with kInvalidArgument if the layout does not resolve (global shape,
  // placements and local shape contradict each other; the tensor is skipped and
  // the failure is not sticky), with kIo if the operating system refuses.
  virtual Status Append(const RecordSpec& spec, const Occurrence& occurrence,
                        const StridedView& view) = 0;

  // What Append would keep of such a tensor instead of its values, if that
  // follows from them alone; else nothing, as of what Append refuses. Any
  // thread may ask, also while another one is in any other call. `parts`: has
  // work done.
  virtual std::optional<Reducer::Summarized> SummaryOf(
      const RecordSpec& /*spec*/, const Occurrence& /*occurrence*/,
      const StridedView& /*view*/, const DoParts& /*parts*/) const {
    return std::nullopt;
  }
  // As Append, of a tensor of which SummaryOf gave this.
  virtual Status AppendSummary(const RecordSpec& spec,
                               const Occurrence& occurrence, Summary kind,
                               std::span<const std::byte> bytes) = 0;

  // Adds a record of another trace of the same rank, with what it holds: its
  // values, or `bytes` in their place. It gets the next sequence, which is
  // written to it; what it was measured against has to be one of this trace's.
  // Fails as Append.
  virtual Status Restate(RecordFields* record,
                         std::span<const std::byte> bytes) = 0;

  // Sets aside what is appended until Release or Drop, for loops that decide as
  // they go how many micro-batches an iteration has. Meanwhile the global batch
  // that a spec with a batch dimension states is that of one micro-batch.
  // Notes are written at once. Of a gradient of an activation and of a loss
  // terms may come one by one, where a loop calls backward several times on one
  // graph: they are added up in the place of the first, each sum rounded as its
  // dtype. Fails with kInvalidArgument if something is held already, and with
  // kUnsupported unless HoldRecords made the writer.
  virtual Status Hold() { return HoldsNothing(); }
  // What is held of this occurrence is of `spec`, and its rows begin at
  // occurrence.row_begin: more is known than when it came. dtype and local
  // shape are the same.
  virtual Status Amend(const RecordSpec& /*spec*/,
                       const Occurrence& /*occurrence*/) {
    return HoldsNothing();
  }
  // Appends what is held, in the order in which it came. `micro_batches`: their
  // number, those of all ranks, in each of the iteration's batches, by
  // Occurrence::batch: a loop that steps one model after the other may give
  // each another batch. Returns the first failure.
  virtual Status Release(std::span<const int64_t> /*micro_batches*/) {
    return HoldsNothing();
  }
  // What is held is forgotten.
  virtual Status Drop() { return HoldsNothing(); }

  // Adds a remark: `kind` is a short word ("leg_skipped", "not_materialised",
  // "notice", ...), `json_object` any JSON object. Notes survive a crash too.
  virtual Status Note(const std::string& kind,
                      const std::string& json_object) = 0;

  // Puts into the files all that was appended and noted, so that whoever opens
  // the trace now finds it; but for what is decided later.
  virtual Status Flush() = 0;

  // All records of (iteration, leg) are written: flushes them to the disk and
  // says so in the index.
  virtual Status Seal(int iteration, const Leg& leg) = 0;

  // Writes safetensors headers and the end line. `complete` is false when
  // capture gave up; `reason` then says why. No call may follow.
  virtual Status Close(bool complete, const std::string& reason) = 0;

 private:
  static Error HoldsNothing() {
    return {ErrorCode::kUnsupported, "this writer holds no records"};
  }
};

// Writes `<folder>/manifest.json` atomically. `json_object`: run id, command,
// time, versions, whether this is a reference. Adds "format" and its version.
// Fails with kInvalidArgument if `folder` exists and is not empty and `force`
// is false. With `force`, an earlier trace in it is removed first, and nothing
// else that lies there.
Status CreateTraceFolder(const std::string& folder,
                         const std::string& json_object, bool force);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITER_H_
