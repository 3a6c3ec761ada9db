// WrittenRecords: what a rank wrote of the legs that others are measured
// against, to be read back by the rank itself.
//
// Kept for one iteration: its reruns come before the next one.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_WRITING_WRITTEN_RECORDS_H_
#define TTRACE_SRC_TRACE_WRITING_WRITTEN_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/file.h"
#include "src/trace/record_fields.h"
#include "ttrace/leg.h"
#include "ttrace/status.h"

namespace ttrace {

class WrittenRecords {
 public:
  explicit WrittenRecords(std::string rank_folder)
      : rank_folder_(std::move(rank_folder)) {}

  // Forgets records of other iterations.
  void Add(const RecordFields& record);
  int iteration() const { return iteration_; }  // -1: nothing was added

  // All pieces of a tensor in `leg`, in the order in which they were written.
  const std::vector<RecordFields>& Find(const Leg& leg,
                                        const TensorId& id) const;
  // The piece of `leg` in the place of `record`: of the same tensor, dtype,
  // place and micro-batch. Null: there is none.
  const RecordFields* CounterpartOf(const RecordFields& record,
                                    const Leg& leg) const;

  // As Trace::Read, without a checksum.
  Status Read(const RecordFields& record, int64_t offset,
              std::span<std::byte> out);

 private:
  std::string rank_folder_;
  int iteration_ = -1;
  std::map<std::pair<Leg, TensorId>, std::vector<RecordFields>> records_;
  std::map<int, File> segments_;  // the last that were read
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITING_WRITTEN_RECORDS_H_
