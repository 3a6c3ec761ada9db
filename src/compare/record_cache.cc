#include "src/compare/record_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "src/trace/segments/verify_ahead.h"

namespace ttrace {
namespace {

// Of what is read without being looked at, for the checksum.
constexpr int64_t kTileBytes = 256 << 10;
// So much is read as a whole, where all of it has to be for the checksum.
constexpr int64_t kSmallRange = 256 << 10;
// More is not held of one record: few elements that lie all over it.
constexpr int64_t kLargestRange = 8 << 20;

}  // namespace

struct CachedRecord::Hash {
  Hash() { XXH3_64bits_reset(&state); }
  XXH3_state_t state;
};

CachedRecord::CachedRecord(const Trace& trace, const Record& record)
    : trace_(trace), record_(record) {}
CachedRecord::~CachedRecord() = default;

void CachedRecord::Want(int64_t begin, int64_t end, int64_t count) {
  const Wanted wanted = {begin, end, count};
  if (wanted_.empty() || wanted_.back() != wanted) wanted_.push_back(wanted);
}

std::optional<std::pair<int64_t, int64_t>> CachedRecord::RangeToLoad() {
  // Comparisons that are cut alike want the same.
  std::sort(wanted_.begin(), wanted_.end());
  wanted_.erase(std::unique(wanted_.begin(), wanted_.end()), wanted_.end());
  int64_t end = 0;
  int64_t count = 0;
  for (const Wanted& one : wanted_) {
    end = std::max(end, one.end);
    count += one.count;
  }
  const int64_t begin = wanted_.front().begin;
  wanted_.clear();
  if (!looked_at_) {
    looked_at_ = true;
    // Small ones are verified with their neighbours.
    if (bytes() > kMaxVerifiedAheadBytes && trace_.IsUnverified(record_)) {
      hash_ = std::make_unique<Hash>();
    }
  }
  const bool is_small = hash_ != nullptr && bytes() <= kSmallRange;
  if (is_small) return std::pair(int64_t{0}, bytes());
  if (end - begin > std::min(kLargestRange, count + count / 4)) {
    return std::nullopt;
  }
  return std::pair(begin, end);
}

// Makes room for [begin, end) and gives the place of what is not there yet,
// which begins at end_.
std::byte* CachedRecord::MoveTo(int64_t begin, int64_t end) {
  if (begin < begin_ || begin >= end_) begin_ = end_ = begin;
  const int64_t kept = end_ - begin;
  const std::byte* from = data_.get() + (begin - begin_);
  if (end - begin > capacity_) {
    std::unique_ptr<std::byte[]> larger(
        new std::byte[static_cast<size_t>(end - begin)]);
    if (kept > 0) std::memcpy(larger.get(), from, static_cast<size_t>(kept));
    data_ = std::move(larger);
    capacity_ = end - begin;
  } else if (kept > 0) {
    std::memmove(data_.get(), from, static_cast<size_t>(kept));
  }
  begin_ = begin;
  return data_.get() + kept;
}

Status CachedRecord::ReadRange(int64_t begin, int64_t end, std::byte* out) {
  const auto range = std::span(out, static_cast<size_t>(end - begin));
  return hash_ != nullptr ? trace_.ReadUnverified(record_, begin, range)
                          : trace_.Read(record_, begin, range);
}

// Of bytes that nobody looks at.
Status CachedRecord::HashUpTo(int64_t end) {
  std::vector<std::byte> tile;
  while (hashed_ < end) {
    const int64_t n = std::min(kTileBytes, end - hashed_);
    tile.resize(static_cast<size_t>(n));
    TTRACE_RETURN_IF_ERROR(ReadRange(hashed_, hashed_ + n, tile.data()));
    XXH3_64bits_update(&hash_->state, tile.data(), tile.size());
    hashed_ += n;
  }
  return Done{};
}

void CachedRecord::Load() {
  if (wanted_.empty()) return;
  const auto range = RangeToLoad();
  if (!range || error_) return;
  const auto [begin, end] = *range;
  if (begin >= begin_ && end <= end_) return;
  std::byte* out = MoveTo(begin, end);
  const int64_t from = end_;
  Status status = hash_ != nullptr ? HashUpTo(from) : Status(Done{});
  if (status.ok()) status = ReadRange(from, end, out);
  if (!status.ok()) {
    error_ = status.error();
    end_ = begin_;
    return;
  }
  end_ = end;
  if (hash_ == nullptr || end <= hashed_) return;
  XXH3_64bits_update(&hash_->state, data_.get() + (hashed_ - begin_),
                     static_cast<size_t>(end - hashed_));
  hashed_ = end;
}

Status CachedRecord::Confirm() {
  if (confirmed_) return Done{};
  Status status = Done{};
  if (!error_ && hash_ != nullptr && trace_.IsUnverified(record_)) {
    const Status read = HashUpTo(bytes());
    if (read.ok()) {
      status = trace_.Confirm(record_, XXH3_64bits_digest(&hash_->state));
    } else {
      error_ = read.error();
    }
  }
  if (error_) {
    // That it is damaged is said where all look for it.
    if (error_->code() == ErrorCode::kCorrupt) status = trace_.Verify(record_);
    if (status.ok()) status = *error_;
  }
  confirmed_ = status.ok();
  return NamedPiece(status, record_);
}

void CachedRecord::Drop() {
  data_.reset();
  capacity_ = begin_ = end_ = 0;
}

CachedRecord* RecordCache::Get(const Trace& trace, const Record& record) {
  int64_t number = record.number();
  if (const auto owner = record.same_as()) {
    const auto found = trace.records().Find(record.rank(), *owner);
    if (found) number = found->number();
  }
  std::unique_ptr<CachedRecord>& entry = records_[{&trace, number}];
  if (entry == nullptr) entry = std::make_unique<CachedRecord>(trace, record);
  return entry.get();
}

void RecordCache::Trim() {
  int64_t kept = 0;
  for (const auto& [key, record] : records_) {
    if (record->IsWhole() && kept + record->bytes() <= kKeptBytes) {
      kept += record->bytes();
    } else {
      record->Drop();
    }
  }
}

Status NamedPiece(const Status& status, const Record& record) {
  if (status.ok()) return status;
  return status.error().WithContext("rank " + std::to_string(record.rank()) +
                                    ": " + ToString(record.id()));
}

}  // namespace ttrace
