// RecordList: some records of one table, in an order of their own.
//
// Thread safety: const methods may be called from many threads.

#ifndef TTRACE_SRC_TRACE_RECORD_LIST_H_
#define TTRACE_SRC_TRACE_RECORD_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "src/base/check.h"
#include "src/trace/index/index_iterator.h"
#include "src/trace/record_table.h"

namespace ttrace {

// Four bytes a record.
class RecordList {
 public:
  RecordList() = default;
  RecordList(std::initializer_list<Record> records) {
    for (const Record& record : records) push_back(record);
  }

  void push_back(const Record& record) {
    if (places_.empty()) table_ = record.table_;
    TTRACE_CHECK(table_ == record.table_, "a list is of one table");
    places_.push_back(record.place_);
  }
  void reserve(size_t count) { places_.reserve(count); }
  void clear() { places_.clear(); }
  // Gives back the room for more.
  void ShrinkToFit() { places_.shrink_to_fit(); }

  size_t size() const { return places_.size(); }
  bool empty() const { return places_.empty(); }
  Record operator[](size_t i) const { return {table_, places_[i]}; }
  Record front() const { return (*this)[0]; }
  Record back() const { return (*this)[places_.size() - 1]; }

  using Iterator = IndexIterator<RecordList, Record>;
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

  // Sorts by `before(a, b)`, a strict order of records; what is equal stays in
  // its order.
  template <typename Before>
  void StableSort(const Before& before) {
    std::stable_sort(places_.begin(), places_.end(),
                     [&](uint32_t a, uint32_t b) {
                       return before(Record(table_, a), Record(table_, b));
                     });
  }
  template <typename Predicate>
  void EraseIf(const Predicate& predicate) {
    std::erase_if(places_, [&](uint32_t place) {
      return predicate(Record(table_, place));
    });
  }

 private:
  const RecordTable* table_ = nullptr;
  std::vector<uint32_t> places_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_RECORD_LIST_H_
