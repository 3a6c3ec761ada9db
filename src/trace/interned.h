// Interned: equal values, once.
//
// Thread safety: const methods may be called from many threads.

#ifndef TTRACE_SRC_TRACE_INTERNED_H_
#define TTRACE_SRC_TRACE_INTERNED_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace ttrace {

// `Hash` is a function object; equal values have equal hashes.
template <typename T, typename Hash>
class Interned {
 public:
  // More would not fit the numbers.
  static constexpr size_t kMaxValues = 0xffffffff;

  Interned() = default;
  Interned(const Interned&) = delete;
  Interned& operator=(const Interned&) = delete;

  // The number of the value that equals this one: 0, 1, ... as they come.
  // REQUIRES: size() < kMaxValues
  uint32_t NumberOf(const T& value) {
    // A rank mostly says what an earlier one said, in its order: then the next
    // value is the one, and no table has to be searched for it.
    if (next_ < values_.size() && values_[next_] == value) {
      return static_cast<uint32_t>(next_++);
    }
    if (2 * values_.size() >= slots_.size()) Grow();
    size_t slot = SlotFor(value);
    for (; slots_[slot] != kFree; slot = (slot + 1) & (slots_.size() - 1)) {
      if (values_[slots_[slot]] == value) {
        next_ = size_t{slots_[slot]} + 1;
        return slots_[slot];
      }
    }
    const auto number = static_cast<uint32_t>(values_.size());
    values_.push_back(value);
    slots_[slot] = number;
    next_ = values_.size();
    return number;
  }

  // References stay valid.
  const T& operator[](uint32_t number) const { return values_[number]; }
  size_t size() const { return values_.size(); }

 private:
  static constexpr uint32_t kFree = 0xffffffff;
  static constexpr size_t kFirstSlots = 32;

  size_t SlotFor(const T& value) const {
    return Hash()(value) & (slots_.size() - 1);
  }

  void Grow() {
    slots_.assign(slots_.empty() ? kFirstSlots : 2 * slots_.size(), kFree);
    for (size_t n = 0; n < values_.size(); ++n) {
      size_t slot = SlotFor(values_[n]);
      while (slots_[slot] != kFree) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = static_cast<uint32_t>(n);
    }
  }

  std::deque<T> values_;
  std::vector<uint32_t> slots_;  // numbers by hash; a power of two of them
  size_t next_ = 0;              // after the last number that was given
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INTERNED_H_
