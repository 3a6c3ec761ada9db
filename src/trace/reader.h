// Trace: everything that can be learnt from a trace folder, validated.
//
// Opening reads manifests and indices only; tensor bytes are read on demand by
// pread, never mapped, so that a file that shrinks gives an Error and not a
// signal. Whatever the files contain, the answer is a Trace or an Error.
//
// No byte of a tensor is given out before the whole tensor was compared with
// its checksum, once for each record; but to whoever asks for unverified ones
// and promises to use nothing that he made of them before they are confirmed.
//
// Thread safety: const methods may be called from many threads.

#ifndef TTRACE_SRC_TRACE_READER_H_
#define TTRACE_SRC_TRACE_READER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/record_table.h"
#include "src/trace/writer.h"
#include "ttrace/leg.h"
#include "ttrace/status.h"

namespace ttrace {

struct Note {
  int rank = 0;
  std::string kind;
  std::string json;  // the object as text
};

// A tensor whose bytes cannot be used, and why: rank, file and tensor.
struct DamagedRecord {
  Record record;
  Error error;
};

struct RankTrace {
  RankMeta meta;
  std::string folder;  // as found, for messages
  std::vector<Note> notes;
  std::vector<std::pair<int, Leg>> sealed;  // (iteration, leg)
  bool closed = false;                      // the end line was written
  bool complete = false;  // ... and says that nothing was given up
  std::string incomplete_reason;
  // Lines at the end of an index that a crash made useless: one that was cut,
  // and records whose bytes never reached their segment.
  int64_t dropped_lines = 0;

  // It recorded all that this iteration of this leg has.
  bool Completed(int iteration, const Leg& leg) const {
    return std::find(sealed.begin(), sealed.end(), std::pair(iteration, leg)) !=
           sealed.end();
  }
};

class Trace {
 public:
  // Opens `folder`. Of several restarts of one rank the last is used.
  //
  // Fails with kNotFound if there is no trace, kUnsupported for a newer format,
  // kCorrupt if any file contradicts the format (a line in the middle that does
  // not parse, a record outside its file, a layout that does not fit its shape,
  // two ranks that disagree about the mesh, duplicate ranks). A missing rank is
  // not an error: see missing_ranks().
  //
  // The ranks are read on `threads` threads (0: as many as cores).
  static Result<std::shared_ptr<const Trace>> Open(const std::string& folder,
                                                   int threads = 1);
  virtual ~Trace() = default;

  virtual const std::string& folder() const = 0;
  virtual const std::string& manifest_json() const = 0;
  virtual const DeviceMesh& mesh() const = 0;
  virtual int world_size() const = 0;
  virtual const std::vector<RankTrace>& ranks() const = 0;  // by rank
  virtual const std::vector<int>& missing_ranks() const = 0;

  // All records, by (rank, sequence).
  virtual const RecordTable& records() const = 0;

  // The place in the mesh of `rank`, which is present in this trace.
  virtual const Coordinate& coordinate(int rank) const = 0;

  // The grids in which the ranks lie: 0 is mesh(), the others are its views. A
  // record's names are of the grid Record::grid.
  // REQUIRES: 0 <= grid < grid_count()
  virtual int grid_count() const = 0;
  virtual const DeviceMesh& mesh(int grid) const = 0;
  virtual const Coordinate& coordinate(int rank, int grid) const = 0;

  // Whether Read gives values of `record`, unless a file is damaged.
  virtual bool GivesValues(const Record& record) const {
    return record.holds_values();
  }

  // Reads out.size() bytes of the record's tensor from byte `offset` of it.
  // Fails with kIncomparable if its values were not kept,
  // kInvalidArgument outside the tensor, kCorrupt if the file became
  // shorter or any byte of the tensor is not what was written, kIo otherwise.
  // REQUIRES: `record` is one of records(), or a copy with its extent.
  virtual Status Read(const Record& record, int64_t offset,
                      std::span<std::byte> out) const = 0;

  // What a record holds instead of values.
  // REQUIRES: !record.holds_values()
  virtual Result<std::vector<std::byte>> ReadInstead(
      const Record& record) const = 0;

  // Compares the tensor with its checksum, if nobody has yet. For who draws
  // conclusions from the checksum itself. Fails as Read does.
  virtual Status Verify(const Record& record) const = 0;

  // For who reads all of a tensor anyway, so that the checksum costs no read of
  // its own: whether Read would first compare the tensor with it.
  // REQUIRES: `record` holds values, of records()
  virtual bool IsUnverified(const Record& /*record*/) const { return false; }
  // As Read, of bytes that nobody has compared with anything.
  // REQUIRES: nothing that was made of them is used before Confirm says so
  virtual Status ReadUnverified(const Record& record, int64_t offset,
                                std::span<std::byte> out) const {
    return Read(record, offset, out);
  }
  // As Verify, where all bytes of the tensor were read: `xxh3` is of these.
  virtual Status Confirm(const Record& record, uint64_t /*xxh3*/) const {
    return Verify(record);
  }

  // Every record that Read, Verify or Confirm failed on so far, whatever became
  // of the Error, in the order of records().
  virtual std::vector<DamagedRecord> damaged() const = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_READER_H_
