#include "src/run/duration.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "src/base/format.h"

namespace ttrace {

Result<double> ParseDuration(const std::string& text) {
  const Error wrong(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' is no duration; write 90, 90s, 10m or 2h",
                                Printable(text)));
  double number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || !std::isfinite(number) || number < 0) {
    return wrong;
  }
  const std::string_view unit(parsed.ptr,
                              static_cast<size_t>(end - parsed.ptr));
  double seconds = 0;
  if (unit.empty() || unit == "s")
    seconds = number;
  else if (unit == "m")
    seconds = number * 60;
  else if (unit == "h")
    seconds = number * 3600;
  else if (unit == "d")
    seconds = number * 86400;
  else
    return wrong;
  // Beyond any job, and within what a clock's arithmetic holds.
  constexpr double kLongest = 3650.0 * 86400;
  if (seconds > kLongest) return wrong;
  return seconds;
}

}  // namespace ttrace
