#include "src/check/stand_in_trace.h"

#include <algorithm>

#include "src/align/read_local.h"
#include "src/trace/piece_in_memory.h"

namespace ttrace {

ComparedPieces PiecesComparedInPlace(const TensorPieces& pieces) {
  const auto compared = std::count_if(
      pieces.pieces.begin(), pieces.pieces.end(),
      [](const Record& record) { return !record.compared_with().empty(); });
  if (compared == 0) return ComparedPieces::kNone;
  return static_cast<size_t>(compared) == pieces.pieces.size()
             ? ComparedPieces::kAll
             : ComparedPieces::kSome;
}

Status StandInTrace::Read(const Record& record, int64_t offset,
                          std::span<std::byte> out) const {
  if (record.compared_with().empty()) return trace_.Read(record, offset, out);
  const std::lock_guard lock(mutex_);
  if (held_ != record) {
    const TensorPieces* pieces =
        reference_.FindSameValue(record.compared_with().front(), record.id());
    if (pieces == nullptr) return trace_.Read(record, offset, out);
    const Layout& layout = record.layout();
    held_ = Record();
    values_.resize(static_cast<size_t>(layout.local_count() *
                                       Info(record.dtype()).itemsize));
    TTRACE_RETURN_IF_ERROR(
        ReadLocal(*pieces, layout, record.dtype(), record.scale(), values_));
    held_ = record;
  }
  return ReadFromMemory(values_, record, offset, out);
}

}  // namespace ttrace
