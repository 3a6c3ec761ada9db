#include "src/trace/segments/segment_check.h"

#include <map>
#include <span>

#include "src/trace/file.h"
#include "src/trace/format.h"
#include "src/trace/segments/safetensors_header.h"

namespace ttrace {
namespace {

// In place, so that the room for a shape is there from the entry before.
void SetToExpected(const Record& record, SafetensorsEntry* entry) {
  const Extent extent = record.extent();
  entry->sequence = record.sequence();
  entry->begin = extent.offset - kSegmentHeaderBytes;
  entry->end = entry->begin + extent.bytes;
  if (record.holds_values()) {
    entry->dtype = record.dtype();
    entry->shape = record.local_shape();
  } else {
    entry->dtype = DType::kU8;
    entry->shape.assign(1, extent.bytes);
  }
}

// Whether a segment of `size` bytes begins as our writer begins one of these
// records: then there is nothing to parse, and nothing can be wrong.
bool IsAsWritten(std::span<const std::byte> beginning, int64_t size,
                 const std::vector<Record>& records) {
  SafetensorsHeader header;
  SafetensorsEntry entry;
  int64_t position = 0;
  for (const Record& record : records) {
    SetToExpected(record, &entry);
    if (entry.begin != position || !header.Add(entry)) return false;
    position = entry.end;
  }
  return size - kSegmentHeaderBytes == position && header.IsAt(beginning);
}

// `beginning` is of kSegmentHeaderBytes, for what the file begins with.
Status CheckSegment(const File& file, const std::vector<Record>& records,
                    std::span<std::byte> beginning) {
  TTRACE_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  TTRACE_ASSIGN_OR_RETURN(const size_t got, file.ReadAt(beginning, 0));
  if (got < beginning.size()) return Corrupt("shorter than its header");
  if (IsAsWritten(beginning, size, records)) return Done{};
  TTRACE_ASSIGN_OR_RETURN(const std::vector<SafetensorsEntry> entries,
                          DecodeSafetensorsHeader(beginning, size));
  if (entries.size() != records.size()) {
    return Corrupt("holds " + std::to_string(entries.size()) +
                   " tensors, but the index names " +
                   std::to_string(records.size()));
  }
  SafetensorsEntry expected;
  for (size_t i = 0; i < entries.size(); ++i) {
    SetToExpected(records[i], &expected);
    if (entries[i] != expected) {
      return Corrupt("tensor '" + std::to_string(entries[i].sequence) +
                     "' is not what the index says it is");
    }
  }
  return Done{};
}

}  // namespace

Status CheckSegments(const std::string& rank_folder,
                     const RecordTable& records) {
  std::map<int, std::vector<Record>> by_segment;
  for (const Record& record : records) {
    if (record.same_as()) continue;  // Its bytes are another record's.
    by_segment[record.extent().segment].push_back(record);
  }
  std::vector<std::byte> beginning(static_cast<size_t>(kSegmentHeaderBytes));
  for (const auto& [segment, members] : by_segment) {
    const std::string path = rank_folder + "/" + SegmentFileName(segment);
    const Result<File> file = File::Open(path);
    if (!file.ok()) return Corrupt(file.error().message());
    const Status status = CheckSegment(*file, members, beginning);
    if (!status.ok()) return status.error().WithContext(path);
  }
  return Done{};
}

}  // namespace ttrace
