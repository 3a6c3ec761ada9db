#include "src/trace/segments/verify_ahead.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <span>
#include <vector>

namespace ttrace {
namespace {

constexpr int64_t kBlockBytes = 64 * 1024;
constexpr size_t kMaxRows = 8192;  // to look at, with and without own bytes

struct Ahead {
  size_t number = 0;
  int64_t begin = 0;  // in the block
  int64_t bytes = 0;
  uint64_t xxh3 = 0;
};

// The records whose bytes follow one another without a gap, from `number` on.
std::vector<Ahead> FindAhead(const RecordTable& records, size_t number) {
  std::vector<Ahead> out;
  const int rank = records[number].rank();
  const Extent first = records[number].extent();
  int64_t end = first.offset;
  const size_t last = std::min(records.size(), number + kMaxRows);
  for (size_t n = number; n < last; ++n) {
    const Record record = records[n];
    if (record.rank() != rank) break;
    // Its bytes are an earlier one's.
    if (record.same_as()) continue;
    const Extent extent = record.extent();
    if (extent.segment != first.segment || extent.offset != end ||
        extent.bytes > kMaxVerifiedAheadBytes ||
        end + extent.bytes - first.offset > kBlockBytes) {
      break;
    }
    if (extent.bytes == 0) continue;
    out.push_back({n, end - first.offset, extent.bytes, extent.xxh3});
    end += extent.bytes;
  }
  return out;
}

}  // namespace

void VerifyAhead(const File& file, const RecordTable& records, size_t number,
                 VerifiedRecords* verified) {
  const std::vector<Ahead> ahead = FindAhead(records, number);
  if (ahead.size() < 2) return;
  thread_local std::vector<std::byte> block;
  block.resize(static_cast<size_t>(ahead.back().begin + ahead.back().bytes));
  const auto got = file.ReadAt(block, records[number].extent().offset);
  if (!got.ok() || *got < block.size()) return;
  for (const Ahead& one : ahead) {
    const auto bytes = std::span(block).subspan(static_cast<size_t>(one.begin),
                                                static_cast<size_t>(one.bytes));
    verified->SetLookedAt(one.number,
                          XXH3_64bits(bytes.data(), bytes.size()) == one.xxh3);
  }
}

}  // namespace ttrace
