#include "src/trace/writing/deferred_records.h"

#include "src/base/check.h"

namespace ttrace {

void DeferredRecords::Hold(RecordFields record) {
  TTRACE_CHECK(record.same_as().has_value(), "the values have a place");
  held_.push_back({std::move(record), generation_, 0});
}

Status DeferredRecords::Begin(RecordFields record) {
  Scratch& scratch = Current();
  if (!scratch.file.is_open()) {
    TTRACE_ASSIGN_OR_RETURN(scratch.file, File::CreateUnnamed(folder_));
  }
  held_.push_back({std::move(record), generation_, scratch.end});
  return Done{};
}

Status DeferredRecords::Write(std::span<const std::byte> bytes) {
  Scratch& scratch = Current();
  TTRACE_RETURN_IF_ERROR(scratch.file.WriteAt(bytes, scratch.end));
  scratch.end += static_cast<int64_t>(bytes.size());
  return Done{};
}

void DeferredRecords::Decided() {
  held_.clear();
  ++generation_;
  Current().end = 0;
}

Status DeferredRecords::Read(const Held& held, int64_t offset,
                             std::span<std::byte> out) const {
  TTRACE_CHECK(held.generation + 1 >= generation_, "the values are there");
  const int64_t bytes = held.record.extent.bytes;
  if (offset < 0 || offset > bytes ||
      static_cast<int64_t>(out.size()) > bytes - offset) {
    return Error(ErrorCode::kInvalidArgument,
                 ToString(held.record.id) + ": outside the tensor");
  }
  if (out.empty()) return Done{};
  const File& file = scratch_[held.generation % scratch_.size()].file;
  TTRACE_ASSIGN_OR_RETURN(const size_t got,
                          file.ReadAt(out, held.offset + offset));
  if (got == out.size()) return Done{};
  return Error(ErrorCode::kCorrupt,
               file.path() + " is shorter than what was written to it");
}

}  // namespace ttrace
