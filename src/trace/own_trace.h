// OwnTrace: what a rank has recorded so far, for the rank itself: records that
// lie in its segments, and those that were set aside.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_OWN_TRACE_H_
#define TTRACE_SRC_TRACE_OWN_TRACE_H_

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "src/trace/one_rank_trace.h"
#include "src/trace/record_table.h"
#include "src/trace/writing/deferred_records.h"
#include "src/trace/writing/written_records.h"

namespace ttrace {

class OwnTrace final : public OneRankTrace {
 public:
  // `rank` has the meta, and of notes and seals what matters. Both others have
  // to stay.
  OwnTrace(RankTrace rank, const DeferredRecords& aside,
           WrittenRecords& written)
      : OneRankTrace(std::move(rank)), aside_(aside), written_(written) {}

  // In the order of execution. Returns the record.
  Record Add(const RecordFields& written);
  Record Add(const DeferredRecords::Held& held);

  const RecordTable& records() const override { return records_; }
  Status Read(const Record& record, int64_t offset,
              std::span<std::byte> out) const override;

 private:
  Record AddPlace(DeferredRecords::Held held, bool aside);

  RecordTable records_;
  struct Place {
    DeferredRecords::Held held;
    bool aside = false;  // else in a segment
  };
  std::vector<Place> places_;  // by number of the record
  const DeferredRecords& aside_;
  WrittenRecords& written_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_OWN_TRACE_H_
