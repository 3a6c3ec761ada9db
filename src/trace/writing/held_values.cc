#include "src/trace/writing/held_values.h"

#include <algorithm>

#include "src/base/check.h"

namespace ttrace {

Status HeldValues::Add(std::span<const std::byte> bytes) {
  if (tail_.size() + bytes.size() <= in_memory_) {
    tail_.insert(tail_.end(), bytes.begin(), bytes.end());
    return Done{};
  }
  if (!file_.is_open()) {
    TTRACE_ASSIGN_OR_RETURN(file_, File::CreateUnnamed(folder_));
  }
  for (const std::span<const std::byte> part :
       {std::span(std::as_const(tail_)), bytes}) {
    TTRACE_RETURN_IF_ERROR(file_.WriteAt(part, spilled_));
    spilled_ += static_cast<int64_t>(part.size());
    if (part.data() == tail_.data()) tail_.clear();
  }
  return Done{};
}

Status HeldValues::Read(int64_t offset, std::span<std::byte> out) const {
  const auto size = static_cast<int64_t>(out.size());
  TTRACE_CHECK(offset >= 0 && offset + size <= end(), "it was added");
  const auto in_file =
      static_cast<size_t>(std::clamp(spilled_ - offset, int64_t{0}, size));
  if (in_file > 0) {
    TTRACE_ASSIGN_OR_RETURN(const size_t got,
                            file_.ReadAt(out.first(in_file), offset));
    if (got != in_file) {
      return Error(ErrorCode::kCorrupt,
                   file_.path() + " is shorter than what was written to it");
    }
  }
  const auto begin = tail_.begin() + (std::max(offset, spilled_) - spilled_);
  std::copy_n(begin, size - static_cast<int64_t>(in_file),
              out.begin() + static_cast<int64_t>(in_file));
  return Done{};
}

Status HeldValues::Replace(int64_t offset, std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  TTRACE_CHECK(offset >= 0 && offset + size <= end(), "it was added");
  const auto in_file =
      static_cast<size_t>(std::clamp(spilled_ - offset, int64_t{0}, size));
  if (in_file > 0) {
    TTRACE_RETURN_IF_ERROR(file_.WriteAt(bytes.first(in_file), offset));
  }
  std::copy(bytes.begin() + static_cast<int64_t>(in_file), bytes.end(),
            tail_.begin() + (std::max(offset, spilled_) - spilled_));
  return Done{};
}

void HeldValues::Clear() {
  spilled_ = 0;
  tail_.clear();
}

}  // namespace ttrace
