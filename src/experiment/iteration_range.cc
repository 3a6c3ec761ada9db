#include "src/experiment/iteration_range.h"

#include <charconv>

#include "src/base/format.h"

namespace ttrace {

Result<IterationRange> ParseIterations(const std::string& text) {
  IterationRange range;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.begin);
  const bool colon =
      first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  const auto second =
      std::from_chars(colon ? first.ptr + 1 : end, end, range.end);
  if (!colon || second.ec != std::errc() || second.ptr != end ||
      range.begin < 0 || range.begin >= range.end) {
    return Error(ErrorCode::kInvalidArgument,
                 "iterations '" + Printable(text) +
                     "' are not FIRST:END with 0 <= FIRST < END; 0:2 means the "
                     "first two");
  }
  return range;
}

}  // namespace ttrace
