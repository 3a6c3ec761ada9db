// VerifiedRecords: which records of a trace have been found to be the bytes
// that were written, and which have not.
//
// Thread safety: all methods, from many threads.

#ifndef TTRACE_SRC_TRACE_SEGMENTS_VERIFIED_RECORDS_H_
#define TTRACE_SRC_TRACE_SEGMENTS_VERIFIED_RECORDS_H_

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
      : states_(std::make_unique<std::atomic<State>[]>(count)) {}

  bool IsGood(size_t index) const { return Get(index) == State::kGood; }
  // Nobody has looked at it yet.
  bool IsNew(size_t index) const { return Get(index) == State::kNew; }

  // That somebody looked at it without being asked to, and found it to be good,
  // or not: it is then still to be verified when it is wanted.
  void SetLookedAt(size_t index, bool good) {
    State state = State::kNew;
    states_[index].compare_exchange_strong(
        state, good ? State::kGood : State::kLookedAt);
  }

  // What `verify` says of record number `index`, which it is asked once:
  // another thread that wants the same record waits for its answer.
  Status Ensure(size_t index, const std::function<Status()>& verify);

  // The errors so far, by record.
  std::map<size_t, Error> bad() const;

 private:
  enum class State : uint8_t { kNew, kLookedAt, kGood };
  static constexpr size_t kLocks = 64;

  State Get(size_t index) const {
    return states_[index].load(std::memory_order_acquire);
  }

  std::unique_ptr<std::atomic<State>[]> states_;
  std::array<std::mutex, kLocks> being_verified_;
  mutable std::mutex bad_mutex_;
  std::map<size_t, Error> bad_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_SEGMENTS_VERIFIED_RECORDS_H_
