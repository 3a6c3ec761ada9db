// StagingRing: memory of a fixed size, of which stretches are taken and given
// back in the same order.
//
// Thread safety: none; who uses it from two threads guards every call. The
// memory of a stretch is its taker's until it is given back.

#ifndef TTRACE_SRC_TRACE_DEVICE_STAGING_RING_H_
#define TTRACE_SRC_TRACE_DEVICE_STAGING_RING_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>

namespace ttrace {

class StagingRing {
 public:
  explicit StagingRing(size_t capacity);

  size_t capacity() const { return capacity_; }
  bool empty() const { return stretches_.empty(); }
  // All of it, which stays where it is.
  std::span<std::byte> memory() { return {memory_.get(), capacity_}; }

  // No forked child has this memory. One that has makes the kernel move the
  // parent's pages when they are next written, away from where a device that
  // was told of them writes.
  void KeepFromChildren();

  // `bytes` in a row, aligned for every dtype. Null: there is no room before
  // older stretches are given back; with all of them back there is room for up
  // to capacity() bytes.
  std::byte* Take(size_t bytes);

  // The oldest stretch that was taken.
  // REQUIRES: !empty()
  void GiveBackOldest();

 private:
  struct Stretch {
    size_t begin;
    size_t end;
  };
  std::optional<size_t> FindRoom(size_t bytes) const;

  struct Release {
    size_t capacity = 0;
    void operator()(std::byte* memory) const;
  };

  size_t capacity_;
  std::unique_ptr<std::byte, Release> memory_;
  std::deque<Stretch> stretches_;  // the oldest first
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_DEVICE_STAGING_RING_H_
