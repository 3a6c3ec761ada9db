// RecordCache: the parts of records that the comparisons of one tensor are at,
// so that each byte is read from its file once, whatever number of comparisons
// it is part of.
//
// A record is read forwards, a range at a time, and its checksum is made of the
// bytes as they pass: what is compared first and confirmed afterwards needs no
// read of its own to be verified. A record that fits one range is read once,
// and stays for the next comparisons.
//
// Memory: what is wanted at a time, and afterwards kKeptBytes at most.
//
// Thread safety: one thread, but different records may be loaded by several,
// and what was loaded be read by all.

#ifndef TTRACE_SRC_COMPARE_RECORD_CACHE_H_
#define TTRACE_SRC_COMPARE_RECORD_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/trace/reader.h"
#include "ttrace/status.h"

namespace ttrace {

class CachedRecord {
 public:
  // `trace` must outlive it.
  CachedRecord(const Trace& trace, const Record& record);
  ~CachedRecord();

  int64_t bytes() const { return record_.extent().bytes; }

  // That [begin, end) will be looked at, `count` bytes of it.
  void Want(int64_t begin, int64_t end, int64_t count);
  // Reads what is wanted, or nothing if so much of it lies between what will be
  // looked at that it is better read apart. What it fails with Confirm says.
  void Load();

  // The bytes [begin, end), until the next Load. Null: they are not here.
  const std::byte* Find(int64_t begin, int64_t end) const {
    if (begin < begin_ || end > end_) return nullptr;
    return data_.get() + (begin - begin_);
  }

  // Whether all that was given out is what was written. Fails as Trace::Read.
  // REQUIRES: something of it was wanted
  Status Confirm();

  // All of it is here.
  bool IsWhole() const { return begin_ == 0 && end_ == bytes() && end_ > 0; }
  void Drop();

 private:
  struct Hash;
  struct Wanted {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t count = 0;
    auto operator<=>(const Wanted&) const = default;
  };

  std::optional<std::pair<int64_t, int64_t>> RangeToLoad();
  std::byte* MoveTo(int64_t begin, int64_t end);
  Status ReadRange(int64_t begin, int64_t end, std::byte* out);
  Status HashUpTo(int64_t end);

  const Trace& trace_;
  const Record record_;
  std::vector<Wanted> wanted_;
  std::unique_ptr<std::byte[]> data_;
  int64_t capacity_ = 0;
  int64_t begin_ = 0;  // of the record, in data_
  int64_t end_ = 0;
  bool looked_at_ = false;      // whether it has to be verified
  std::unique_ptr<Hash> hash_;  // null: it was verified when it was first read
  int64_t hashed_ = 0;          // bytes, from the first on
  std::optional<Error> error_;
  bool confirmed_ = false;
};

class RecordCache {
 public:
  static constexpr int64_t kKeptBytes = 2 << 20;

  // Legs that have their bytes in common have one entry.
  CachedRecord* Get(const Trace& trace, const Record& record);

  // Lets go of what is not whole, or more than is kept.
  void Trim();

 private:
  std::map<std::pair<const Trace*, int64_t>, std::unique_ptr<CachedRecord>>
      records_;
};

// What is said of a piece that cannot be read.
Status NamedPiece(const Status& status, const Record& record);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_RECORD_CACHE_H_
