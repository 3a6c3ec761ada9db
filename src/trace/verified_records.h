// VerifiedRecords: which records of a trace have been found to be the bytes
// that were written, and which have not.
//
// Thread safety: all methods, from many threads.

#ifndef TTRACE_SRC_TRACE_VERIFIED_RECORDS_H_
#define TTRACE_SRC_TRACE_VERIFIED_RECORDS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "ttrace/status.h"

namespace ttrace {

class VerifiedRecords {
 public:
  explicit VerifiedRecords(size_t count)
      : good_(std::make_unique<std::atomic<bool>[]>(count)) {}

  bool IsGood(size_t index) const {
    return good_[index].load(std::memory_order_acquire);
  }

  // What `verify` says of record number `index`, which it is asked once:
  // another thread that wants the same record waits for its answer.
  Status Ensure(size_t index, const std::function<Status()>& verify);

  // The errors so far, by record.
  std::map<size_t, Error> bad() const;

 private:
  static constexpr size_t kLocks = 64;

  std::unique_ptr<std::atomic<bool>[]> good_;
  std::array<std::mutex, kLocks> being_verified_;
  mutable std::mutex bad_mutex_;
  std::map<size_t, Error> bad_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_VERIFIED_RECORDS_H_
