#include "src/cli/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/run/free_space.h"

namespace ttrace {
std::string StepsWords(const IterationRange& iterations,
                       const std::vector<Leg>& legs) {
  const auto all = static_cast<int64_t>(legs.size());
  const int64_t fp32 = std::count_if(
      legs.begin(), legs.end(), [](const Leg& leg) { return leg.is_fp32(); });
  const int64_t plain = all - fp32;
  const int64_t count = iterations.count();
  std::string text =
      fmt::format("{} x (1 + {}) = {}", Counted(count, "iteration"),
                  Counted(plain, "leg"), Counted(count * (1 + plain), "step"));
  if (fp32 > 0) {
    text +=
        fmt::format("; {} if it trains in bf16 or fp16, {} of them in fp32",
                    FormatCount(count * (1 + all)), FormatCount(count * fp32));
  }
  return text;
}

std::string CostWords(const CaptureCost& cost, const std::string& folder) {
  std::string text =
      fmt::format("{} an iteration on {}, with {} of each up to {} in all",
                  FormatBytes(cost.real_bytes), Counted(cost.ranks, "rank"),
                  Counted(cost.legs, "rerun"), FormatBytes(cost.trace_bytes));
  if (const auto space = SpaceOf(folder)) {
    text += " (" + FormatBytes(space->free) + " free)";
  }
  return text + "; a rerun takes up to " + FormatBytes(cost.memory) +
         " more memory on a rank (" + FormatBytes(cost.free_memory) + " free)";
}

std::string TooLargeWords(const CaptureCost& cost, const std::string& folder) {
  const auto space = SpaceOf(folder);
  // What one iteration holds is there already.
  if (!space || cost.trace_bytes - cost.real_bytes <= space->free) return "";
  return "its trace will not fit: " + FormatBytes(cost.trace_bytes) +
         " are needed and " + FormatBytes(space->free) +
         " are free; choose another -o, fewer --iterations or legs, or "
         "--select";
}

}  // namespace ttrace
