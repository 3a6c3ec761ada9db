// Interned: equal values, once.
//
// Thread safety: const methods may be called from many threads.

#ifndef TTRACE_SRC_TRACE_INTERNED_H_
#define TTRACE_SRC_TRACE_INTERNED_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_set>

namespace ttrace {

// `Hash` is a function object; equal values have equal hashes.
template <typename T, typename Hash>
class Interned {
 public:
  Interned() : numbers_(16, HashOf{&values_}, Equal{&values_}) {}
  Interned(const Interned&) = delete;
  Interned& operator=(const Interned&) = delete;

  // The number of the value that equals this one: 0, 1, ... as they come.
  uint32_t NumberOf(const T& value) {
    const auto found = numbers_.find(value);
    if (found != numbers_.end()) return *found;
    const auto number = static_cast<uint32_t>(values_.size());
    values_.push_back(value);
    numbers_.insert(number);
    return number;
  }

  // References stay valid.
  const T& operator[](uint32_t number) const { return values_[number]; }
  size_t size() const { return values_.size(); }

 private:
  using Values = std::deque<T>;

  struct HashOf {
    using is_transparent = void;
    const Values* values;
    size_t operator()(const T& value) const { return Hash()(value); }
    size_t operator()(uint32_t number) const {
      return Hash()((*values)[number]);
    }
  };
  struct Equal {
    using is_transparent = void;
    const Values* values;
    bool operator()(uint32_t a, uint32_t b) const { return a == b; }
    bool operator()(const T& a, uint32_t b) const { return a == (*values)[b]; }
    bool operator()(uint32_t a, const T& b) const { return (*values)[a] == b; }
  };

  Values values_;
  std::unordered_set<uint32_t, HashOf, Equal> numbers_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INTERNED_H_
