#include "src/trace/writing/written_records.h"

#include <algorithm>

#include "src/trace/format.h"

namespace ttrace {
namespace {

// Files kept open for reading. A rerun comes in the order of what it repeats.
constexpr size_t kMostOpen = 8;

}  // namespace

void WrittenRecords::Add(const RecordFields& record) {
  if (record.id.iteration != iteration_) {
    records_.clear();
    segments_.clear();
    iteration_ = record.id.iteration;
  }
  records_[{record.leg, record.id}].push_back(record);
}

const std::vector<RecordFields>& WrittenRecords::Find(
    const Leg& leg, const TensorId& id) const {
  static const std::vector<RecordFields> kNone;
  const auto found = records_.find({leg, id});
  return found == records_.end() ? kNone : found->second;
}

const RecordFields* WrittenRecords::CounterpartOf(const RecordFields& record,
                                                  const Leg& leg) const {
  const std::vector<RecordFields>& pieces = Find(leg, record.id);
  const auto found = std::find_if(
      pieces.begin(), pieces.end(), [&](const RecordFields& piece) {
        return piece.micro_batch == record.micro_batch &&
               piece.dtype == record.dtype && piece.layout == record.layout &&
               piece.placements == record.placements &&
               piece.scale == record.scale;
      });
  return found == pieces.end() ? nullptr : &*found;
}

Status WrittenRecords::Read(const RecordFields& record, int64_t offset,
                            std::span<std::byte> out) {
  auto file = segments_.find(record.extent.segment);
  if (file == segments_.end()) {
    if (segments_.size() >= kMostOpen) segments_.erase(segments_.begin());
    TTRACE_ASSIGN_OR_RETURN(File opened,
                            File::Open(rank_folder_ + "/" +
                                       SegmentFileName(record.extent.segment)));
    file = segments_.emplace(record.extent.segment, std::move(opened)).first;
  }
  TTRACE_ASSIGN_OR_RETURN(
      const size_t got,
      file->second.ReadAt(out, record.extent.offset + offset));
  if (got == out.size()) return Done{};
  return Error(ErrorCode::kCorrupt,
               file->second.path() + " is shorter than what was written to it");
}

}  // namespace ttrace
