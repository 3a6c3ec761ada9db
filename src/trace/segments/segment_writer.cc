#include "src/trace/segments/segment_writer.h"

#include <utility>

#include "src/base/check.h"
#include "src/trace/format.h"

namespace ttrace {

Status SegmentWriter::Start() {
  if (next_segment_ == kMaxSegments) {
    return Error(ErrorCode::kIo, "no further segment in " + rank_folder_);
  }
  TTRACE_ASSIGN_OR_RETURN(
      file_, File::Create(rank_folder_ + "/" + SegmentFileName(next_segment_)));
  ++next_segment_;
  header_ = SafetensorsHeader();
  position_ = kSegmentHeaderBytes;
  return Done{};
}

Result<Extent> SegmentWriter::Begin(int64_t sequence, DType dtype,
                                    const Shape& shape, int64_t bytes) {
  const bool is_first = position_ == kSegmentHeaderBytes;
  if (file_.is_open() && !is_first && bytes > kMaxSegmentBytes - position_) {
    TTRACE_RETURN_IF_ERROR(Seal());
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!file_.is_open()) TTRACE_RETURN_IF_ERROR(Start());
    const int64_t begin = position_ - kSegmentHeaderBytes;
    if (header_.Add({sequence, dtype, shape, begin, begin + bytes})) {
      return Extent{next_segment_ - 1, position_, bytes, 0};
    }
    TTRACE_RETURN_IF_ERROR(Seal());
  }
  TTRACE_CHECK(false, "an empty header holds any one entry");
}

Status SegmentWriter::Write(std::span<const std::byte> bytes) {
  TTRACE_RETURN_IF_ERROR(file_.WriteAt(bytes, position_));
  position_ += static_cast<int64_t>(bytes.size());
  return Done{};
}

Status SegmentWriter::Sync() {
  return file_.is_open() ? file_.Sync() : Status(Done{});
}

Status SegmentWriter::Seal() {
  if (!file_.is_open()) return Done{};
  File file = std::exchange(file_, File());
  const std::string header = header_.Bytes();
  TTRACE_RETURN_IF_ERROR(file.WriteAt(std::as_bytes(std::span(header)), 0));
  return file.Sync();
}

}  // namespace ttrace
