// RecordTable: the records of a trace, 24 bytes each.
//
// A trace of many ranks has millions of records, and most of what one says it
// says with many others: a tensor's name with all legs and all ranks that hold
// a piece, a layout with all tensors of that shape, both with the ranks that
// hold copies. Those parts are there once; a record is a row that says which
// they are and where its bytes lie. Its rank and sequence follow from its place
// among the rows: a rank's records come one after the other.
//
// Thread safety: const methods may be called from many threads.

#ifndef TTRACE_SRC_TRACE_RECORD_TABLE_H_
#define TTRACE_SRC_TRACE_RECORD_TABLE_H_

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/trace/index/index_iterator.h"
#include "src/trace/interned.h"
#include "src/trace/record_fields.h"

namespace ttrace {

class RecordTable;

// One record of a table: what RecordFields says, of which the table keeps
// each part once. Two words, to be passed by value or reference; valid as long
// as its table.
class Record {
 public:
  // Of no table: only to be assigned to and compared.
  Record() = default;

  int rank() const;
  int64_t sequence() const;
  const TensorId& id() const;
  const Leg& leg() const;
  int micro_batch() const;
  DType dtype() const;
  const Shape& local_shape() const;
  const PlacementMap& placements() const;
  int grid() const;
  const Scale& scale() const;
  const std::vector<std::string>& reduced_over() const;
  const std::optional<BatchRows>& rows() const;
  const std::optional<Box>& box() const;
  const std::optional<RoutedRows>& routed() const;
  const Layout& layout() const;
  Extent extent() const;
  Payload payload() const;
  // Parts of it: nothing where it is something else.
  bool holds_values() const;
  std::optional<int64_t> same_as() const;
  std::optional<KeptDifference> measured() const;
  std::optional<Summary> summary() const;
  const ComparedWith& compared_with() const;
  int64_t number() const;

  // All of it, by itself: to be written, or changed and appended to a table.
  RecordFields fields() const;

  // Equal parts have equal numbers, counted from 0 in their table.
  uint32_t id_number() const;
  uint32_t form_number() const;

  // The same row of the same table. Any order of rows of different tables.
  bool operator==(const Record&) const = default;
  auto operator<=>(const Record&) const = default;

 private:
  friend class RecordTable;
  friend class RecordList;
  Record(const RecordTable* table, uint32_t place)
      : table_(table), place_(place) {}

  const RecordTable* table_ = nullptr;
  uint32_t place_ = 0;
};

class RecordTable {
 public:
  static constexpr size_t kMaxRecords = 0xffffffff;

  RecordTable() = default;
  RecordTable(const RecordTable&) = delete;
  RecordTable& operator=(const RecordTable&) = delete;

  // Its number is fields.number, or its place in the table if that is -1.
  // REQUIRES: size() < kMaxRecords; fields are what an IndexLineDecoder or a
  // Record gave, its layout and placements possibly changed.
  Record Append(const RecordFields& fields);

  // The same in two steps, for who appends many records that have much in
  // common and keeps the numbers of what that is. Of `fields`, only what they
  // are numbers of has to be set.
  struct Parts {
    uint32_t id = 0;
    uint32_t form = 0;
    uint32_t place = 0;
    bool operator==(const Parts&) const = default;
  };
  uint32_t NumberOfId(const TensorId& id) { return ids_.NumberOf(id); }
  uint32_t NumberOfForm(const RecordFields& fields);
  uint32_t NumberOfPlace(const RecordFields& fields);
  // What no other record has.
  struct Own {
    int rank = 0;
    int64_t sequence = 0;
    int segment = 0;
    int64_t offset = 0;
    uint64_t xxh3 = 0;
    std::optional<int64_t> origin;  // of the payload
  };
  // REQUIRES: size() < kMaxRecords, parts are numbers of this table, no record
  // has a number of its own.
  Record Append(const Parts& parts, const Own& own);

  // All records of `other`, in their order, numbered on.
  // REQUIRES: together no more than kMaxRecords; `other` has no copies of
  // records of another table.
  void Append(const RecordTable& other);
  // Keeps the first `count` records only.
  void Truncate(size_t count);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Record operator[](size_t place) const {
    return {this, static_cast<uint32_t>(place)};
  }
  Record front() const { return (*this)[0]; }
  Record back() const { return (*this)[size_ - 1]; }

  using Iterator = IndexIterator<RecordTable, Record>;
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size_}; }

  // The record of `rank` with this sequence, if there is one.
  // REQUIRES: records were appended by (rank, sequence).
  std::optional<Record> Find(int rank, int64_t sequence) const;

  // How many different ones there are.
  size_t id_count() const { return ids_.size(); }
  size_t form_count() const { return forms_.size(); }

 private:
  friend class Record;

  // What the pieces of a tensor, and many tensors, have in common.
  struct Form {
    Leg leg;
    DType dtype = DType::kF32;
    PlacementMap placements;
    int grid = 0;
    Scale scale;
    std::vector<std::string> reduced_over;
    std::optional<RoutedRows> routed;
    Payload payload;     // without its origin
    int64_t bytes = -1;  // of what is held instead of values; -1: values are
    bool operator==(const Form&) const = default;
  };
  // Where in a tensor pieces lie.
  struct Place {
    int micro_batch = -1;
    Shape local_shape;
    std::optional<BatchRows> rows;
    std::optional<Box> box;
    Layout layout;
    bool operator==(const Place&) const = default;
  };
  struct HashOfId {
    size_t operator()(const TensorId& id) const;
  };
  struct HashOfForm {
    size_t operator()(const Form& form) const;
  };
  struct HashOfPlace {
    size_t operator()(const Place& place) const;
  };

  struct HashOfParts {
    size_t operator()(const Parts& parts) const;
  };

  static constexpr uint32_t kNoOrigin = 0xffffffff;
  struct Row {
    uint64_t xxh3 = 0;
    uint64_t segment : 20 = 0;
    uint64_t offset : 44 = 0;
    uint32_t parts = 0;
    uint32_t origin = kNoOrigin;  // of the payload: a sequence
  };
  static_assert(sizeof(Row) == 24);

  // Rows of one rank with consecutive sequences, up to the next run's first.
  struct Run {
    uint32_t first = 0;
    uint32_t rank = 0;
    uint32_t sequence = 0;  // of the first
  };

  static constexpr size_t kBlockShift = 12;
  static constexpr size_t kBlockRows = size_t{1} << kBlockShift;

  void Add(const Parts& parts, const Own& own);
  void AddRow(const Row& row, uint32_t rank, uint32_t sequence);
  const Run& run(uint32_t place) const {
    const size_t block = place >> kBlockShift;
    const size_t next = block + 1 < first_run_.size()
                            ? size_t{first_run_[block + 1]} + 1
                            : runs_.size();
    const auto after = std::upper_bound(
        runs_.begin() + first_run_[block],
        runs_.begin() + static_cast<std::ptrdiff_t>(next), place,
        [](uint32_t n, const Run& run) { return n < run.first; });
    return *std::prev(after);
  }
  const Row& row(uint32_t place) const {
    return blocks_[place >> kBlockShift][place & (kBlockRows - 1)];
  }
  const Parts& parts(uint32_t place) const { return parts_[row(place).parts]; }
  const Form& form(uint32_t place) const { return forms_[parts(place).form]; }
  const Place& place(uint32_t place) const {
    return places_[parts(place).place];
  }

  Interned<TensorId, HashOfId> ids_;
  Interned<Form, HashOfForm> forms_;
  Interned<Place, HashOfPlace> places_;
  Interned<Parts, HashOfParts> parts_;
  std::vector<std::unique_ptr<Row[]>> blocks_;  // of kBlockRows
  std::vector<Run> runs_;
  std::vector<uint32_t> first_run_;  // by block: that of its first row
  size_t size_ = 0;
  // By place, where they are not the places themselves; else empty.
  std::vector<int64_t> numbers_;
};

inline int Record::rank() const {
  return static_cast<int>(table_->run(place_).rank);
}
inline int64_t Record::sequence() const {
  const RecordTable::Run& run = table_->run(place_);
  return int64_t{run.sequence} + (place_ - run.first);
}
inline const TensorId& Record::id() const {
  return table_->ids_[table_->parts(place_).id];
}
inline const Leg& Record::leg() const { return table_->form(place_).leg; }
inline int Record::micro_batch() const {
  return table_->place(place_).micro_batch;
}
inline DType Record::dtype() const { return table_->form(place_).dtype; }
inline const Shape& Record::local_shape() const {
  return table_->place(place_).local_shape;
}
inline const PlacementMap& Record::placements() const {
  return table_->form(place_).placements;
}
inline int Record::grid() const { return table_->form(place_).grid; }
inline const Scale& Record::scale() const { return table_->form(place_).scale; }
inline const std::vector<std::string>& Record::reduced_over() const {
  return table_->form(place_).reduced_over;
}
inline const std::optional<BatchRows>& Record::rows() const {
  return table_->place(place_).rows;
}
inline const std::optional<Box>& Record::box() const {
  return table_->place(place_).box;
}
inline const std::optional<RoutedRows>& Record::routed() const {
  return table_->form(place_).routed;
}
inline const Layout& Record::layout() const {
  return table_->place(place_).layout;
}
inline bool Record::holds_values() const {
  return table_->form(place_).bytes < 0;
}
inline int64_t Record::number() const {
  return table_->numbers_.empty() ? int64_t{place_} : table_->numbers_[place_];
}
inline uint32_t Record::id_number() const { return table_->parts(place_).id; }
inline uint32_t Record::form_number() const {
  return table_->parts(place_).form;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_RECORD_TABLE_H_
