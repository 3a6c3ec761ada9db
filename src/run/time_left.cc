#include "src/run/time_left.h"

#include <algorithm>

namespace ttrace {

void TimeLeft::Ended(const std::vector<Leg>& parts, double seconds) {
  if (parts.empty()) return;
  if (last_end_) {
    // Short ones end together between two looks.
    const double each =
        (seconds - *last_end_) / static_cast<double>(parts.size());
    for (const Leg& part : parts) {
      Mean& mean = part.is_fp32() ? fp32_ : as_trained_;
      mean.seconds += each;
      ++mean.parts;
    }
  }
  last_end_ = seconds;
}

std::optional<double> TimeLeft::Of(const PartsToCome& parts,
                                   double seconds) const {
  double left = 0;
  double longest = 0;
  const auto add = [&](int count, const Mean& mean) {
    if (count <= 0) return true;
    if (mean.parts == 0) return false;
    left += count * mean.value();
    longest = std::max(longest, mean.value());
    return true;
  };
  if (!add(parts.as_trained, as_trained_) || !add(parts.fp32, fp32_)) {
    return std::nullopt;
  }
  // Of one part some has gone by; one that takes longer than any did will end
  // nobody knows when, and what is known is how long the others take.
  if (last_end_) left -= std::min(seconds - *last_end_, longest);
  return std::max(left, 0.0);
}

}  // namespace ttrace
