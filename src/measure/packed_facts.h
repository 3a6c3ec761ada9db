// PackedFacts: the facts of many tensors, in as few bytes as they need.
//
// A run of a thousand ranks has tens of thousands of tensors, all of which wait
// to be measured before the first is judged: what any of them is judged by may
// follow from all. Most of what was measured of most is zero.
//
// Thread safety: const methods from many threads; Set and Forget too, each of
// other facts.

#ifndef TTRACE_SRC_MEASURE_PACKED_FACTS_H_
#define TTRACE_SRC_MEASURE_PACKED_FACTS_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include "src/measure/facts.h"
#include "src/trace/index/index_iterator.h"

namespace ttrace {

class PackedFacts {
 public:
  PackedFacts() = default;
  PackedFacts(const std::vector<TensorFacts>& facts);  // NOLINT: they are these
  PackedFacts(std::initializer_list<TensorFacts> facts)
      : PackedFacts(std::vector<TensorFacts>(facts)) {}

  size_t size() const { return packed_.size(); }
  bool empty() const { return packed_.empty(); }
  // As they were given, bit for bit.
  // REQUIRES: they were, and are not forgotten.
  TensorFacts operator[](size_t i) const;
  TensorFacts front() const { return (*this)[0]; }
  TensorFacts back() const { return (*this)[size() - 1]; }

  using Iterator = IndexIterator<PackedFacts, TensorFacts>;
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

  void push_back(const TensorFacts& facts);
  void pop_back() { packed_.pop_back(); }
  void resize(size_t count) { packed_.resize(count); }
  void Set(size_t i, const TensorFacts& facts);
  // Takes no memory for these any more. A string that is assigned an empty one
  // would keep its own.
  void Forget(size_t i) { std::string().swap(packed_[i]); }

  // Adds all of `other`.
  void Append(PackedFacts other);
  // Sorts them by TensorFacts::order.
  void Sort();

  size_t bytes() const;  // of all

 private:
  std::vector<std::string> packed_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_PACKED_FACTS_H_
