// IndexIterator: iterates over what a container gives by value for each index.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_TRACE_INDEX_INDEX_ITERATOR_H_
#define TTRACE_SRC_TRACE_INDEX_INDEX_ITERATOR_H_

#include <compare>
#include <cstddef>
#include <iterator>

namespace ttrace {

// `Container::operator[](size_t)` returns a Value. The container stays where it
// is.
template <typename Container, typename Value>
class IndexIterator {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = Value;
  using difference_type = std::ptrdiff_t;
  using pointer = void;
  using reference = Value;

  IndexIterator() = default;
  IndexIterator(const Container* container, size_t index)
      : container_(container), index_(index) {}
  Value operator*() const { return (*container_)[index_]; }
  Value operator[](difference_type n) const { return *(*this + n); }
  IndexIterator& operator+=(difference_type n) {
    index_ += static_cast<size_t>(n);
    return *this;
  }
  IndexIterator& operator-=(difference_type n) { return *this += -n; }
  IndexIterator& operator++() { return *this += 1; }
  IndexIterator& operator--() { return *this += -1; }
  IndexIterator operator++(int) { return (*this += 1) - 1; }
  IndexIterator operator--(int) { return (*this -= 1) + 1; }
  friend IndexIterator operator+(IndexIterator it, difference_type n) {
    return it += n;
  }
  friend IndexIterator operator+(difference_type n, IndexIterator it) {
    return it += n;
  }
  friend IndexIterator operator-(IndexIterator it, difference_type n) {
    return it -= n;
  }
  friend difference_type operator-(const IndexIterator& a,
                                   const IndexIterator& b) {
    return static_cast<difference_type>(a.index_) -
           static_cast<difference_type>(b.index_);
  }
  bool operator==(const IndexIterator& other) const {
    return index_ == other.index_;
  }
  auto operator<=>(const IndexIterator& other) const {
    return index_ <=> other.index_;
  }

 private:
  const Container* container_ = nullptr;
  size_t index_ = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INDEX_INDEX_ITERATOR_H_
