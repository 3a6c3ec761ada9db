// SmallVector: a sequence that mostly has one element, and then no memory of
// its own.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_BASE_SMALL_VECTOR_H_
#define TTRACE_SRC_BASE_SMALL_VECTOR_H_

#include <algorithm>
#include <compare>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

namespace ttrace {

// T can be copied and made of nothing.
template <typename T>
class SmallVector {
 public:
  using value_type = T;
  using const_iterator = const T*;

  SmallVector() = default;
  SmallVector(std::initializer_list<T> values) {
    for (const T& value : values) push_back(value);
  }
  explicit SmallVector(std::vector<T> values) {
    if (values.size() == 1) {
      push_back(values.front());
    } else {
      many_ = std::move(values);
    }
  }

  void push_back(const T& value) {
    if (empty()) {
      one_ = value;
      has_one_ = true;
      return;
    }
    if (has_one_) {
      many_.push_back(one_);
      has_one_ = false;
    }
    many_.push_back(value);
  }

  size_t size() const { return has_one_ ? 1 : many_.size(); }
  bool empty() const { return size() == 0; }
  const T& operator[](size_t i) const { return begin()[i]; }
  const T& front() const { return *begin(); }
  T& front() { return has_one_ ? one_ : many_.front(); }
  const T& back() const { return end()[-1]; }
  const T* begin() const { return has_one_ ? &one_ : many_.data(); }
  const T* end() const { return begin() + size(); }

  bool operator==(const SmallVector& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
  std::vector<T> ToVector() const { return {begin(), end()}; }
  // By their first elements that differ.
  bool operator<(const SmallVector& other) const {
    return std::lexicographical_compare(begin(), end(), other.begin(),
                                        other.end());
  }

 private:
  bool has_one_ = false;
  T one_ = {};
  std::vector<T> many_;  // empty if there is one
};

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_SMALL_VECTOR_H_
