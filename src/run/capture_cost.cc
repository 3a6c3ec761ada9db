#include "src/run/capture_cost.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "src/run/message_lines.h"

namespace ttrace {
namespace {

// What one rank says. Bytes of tensors of one run of the iteration.
struct RankCost {
  double legs = 0;
  double fp32_legs = 0;
  double stored_legs = 0;  // whose values are written; of some a part. Of these
  double stored_fp32_legs = 0;
  double leg_bytes = 0;       // activations and gradients
  double fp32_leg_bytes = 0;  // the same, if each element takes 4 bytes
  double state_bytes = 0;     // parameters and what the optimizer holds
  double memory = 0;
  double free_memory = 0;
};

// A count that nothing absurd can come of: 0 for anything else.
double Count(const nlohmann::json& message, const char* key) {
  constexpr double kMost = 1e18;
  const auto found = message.find(key);
  if (found == message.end() || !found->is_number()) return 0;
  const double value = found->get<double>();
  return value >= 0 && value <= kMost ? value : 0;
}

}  // namespace

CaptureCost ReadCaptureCost(const std::string& trace_folder,
                            const IterationRange& iterations) {
  CaptureCost cost;
  std::map<std::string, RankCost> ranks;
  for (const nlohmann::json& message : ReadMessageLines(trace_folder)) {
    const auto rank = message.find("rank");
    if (MessageText(message, "kind") != "cost" || rank == message.end() ||
        !rank->is_string()) {
      continue;
    }
    ranks[rank->get<std::string>()] = {
        Count(message, "legs"),        Count(message, "fp32_legs"),
        Count(message, "stored_legs"), Count(message, "stored_fp32_legs"),
        Count(message, "leg_bytes"),   Count(message, "fp32_leg_bytes"),
        Count(message, "state_bytes"), Count(message, "memory"),
        Count(message, "free_memory")};
  }
  cost.ranks = static_cast<int>(ranks.size());
  cost.free_memory =
      ranks.empty() ? 0 : std::numeric_limits<double>::infinity();
  const auto count = static_cast<double>(iterations.count());
  for (const auto& [name, rank] : ranks) {
    const double rerun =
        (rank.stored_legs - std::min(rank.stored_legs, rank.stored_fp32_legs)) *
            rank.leg_bytes +
        rank.stored_fp32_legs * rank.fp32_leg_bytes;
    cost.legs = std::max(cost.legs, static_cast<int>(std::min(rank.legs, 1e6)));
    cost.fp32_legs = std::max(cost.fp32_legs,
                              static_cast<int>(std::min(rank.fp32_legs, 1e6)));
    cost.real_bytes += rank.leg_bytes + rank.state_bytes;
    cost.trace_bytes +=
        count * (rank.leg_bytes + rank.state_bytes + rerun) + rank.state_bytes;
    cost.memory = std::max(cost.memory, rank.memory);
    cost.free_memory = std::min(cost.free_memory, rank.free_memory);
  }
  return cost;
}

}  // namespace ttrace
