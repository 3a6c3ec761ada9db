// The text form of placements, and the mesh.

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "ttrace/mesh.h"

namespace ttrace {
namespace {

Error Unknown(std::string_view word) {
  // The text may come from a hostile file: quote a bounded part of it.
  std::string message = "not a placement: '";
  message.append(word.substr(0, 80)).append("'");
  return Error(ErrorCode::kInvalidArgument, std::move(message));
}

// The whole of `text` as a number in [0, INT_MAX], or nothing.
std::optional<int> ParseNumber(std::string_view text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < 0) return std::nullopt;
  return value;
}

std::optional<Placement> ParsePlacement(std::string_view word) {
  if (word == "Replicate") return Replicate{};
  if (word == "RaggedShard") return RaggedShard{};
  if (word == "Partial(sum)") return Partial{ReduceOp::kSum};
  if (word == "Partial(avg)") return Partial{ReduceOp::kAvg};

  const size_t open = word.find('(');
  if (open == std::string_view::npos || !word.ends_with(')')) {
    return std::nullopt;
  }
  const std::string_view kind = word.substr(0, open);
  const std::string_view args = word.substr(open + 1, word.size() - open - 2);

  if (kind == "StridedShard") {
    const size_t comma = args.find(',');
    if (comma == std::string_view::npos) return std::nullopt;
    const std::optional<int> dim = ParseNumber(args.substr(0, comma));
    const std::optional<int> sections = ParseNumber(args.substr(comma + 1));
    if (!dim || !sections || *sections < 1) return std::nullopt;
    return StridedShard{*dim, *sections};
  }
  const std::optional<int> dim = ParseNumber(args);
  if (!dim) return std::nullopt;
  if (kind == "Shard") return Shard{*dim};
  if (kind == "ZigzagShard") return ZigzagShard{*dim};
  return std::nullopt;
}

struct Formatter {
  std::string operator()(const Replicate&) const { return "Replicate"; }
  std::string operator()(const Shard& p) const {
    return "Shard(" + std::to_string(p.dim) + ")";
  }
  std::string operator()(const StridedShard& p) const {
    return "StridedShard(" + std::to_string(p.dim) + "," +
           std::to_string(p.sections) + ")";
  }
  std::string operator()(const ZigzagShard& p) const {
    return "ZigzagShard(" + std::to_string(p.dim) + ")";
  }
  std::string operator()(const RaggedShard&) const { return "RaggedShard"; }
  std::string operator()(const Partial& p) const {
    return p.op == ReduceOp::kSum ? "Partial(sum)" : "Partial(avg)";
  }
};

}  // namespace

int DeviceMesh::Find(std::string_view name) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

bool IsPartialOver(const PlacementMap& placements, std::string_view dim) {
  return std::any_of(placements.begin(), placements.end(),
                     [&](const auto& placed) {
                       return placed.first == dim &&
                              std::holds_alternative<Partial>(placed.second);
                     });
}

bool IsRagged(const PlacementMap& placements) {
  return std::any_of(
      placements.begin(), placements.end(), [](const auto& placed) {
        return std::holds_alternative<RaggedShard>(placed.second);
      });
}

std::string ToString(const Placement& placement) {
  return std::visit(Formatter{}, placement);
}

std::string ToString(const PlacementMap& placements) {
  std::string text;
  for (const auto& [name, placement] : placements) {
    if (!text.empty()) text += ' ';
    text.append(name).append(":").append(ToString(placement));
  }
  return text;
}

Result<PlacementMap> ParsePlacements(std::string_view text) {
  PlacementMap placements;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    if (space == std::string_view::npos) {
      text = {};
    } else {
      text.remove_prefix(space + 1);
      if (text.empty()) return Unknown(text);
    }
    const size_t colon = word.find(':');
    if (colon == std::string_view::npos || colon == 0) return Unknown(word);
    const std::optional<Placement> placement =
        ParsePlacement(word.substr(colon + 1));
    if (!placement) return Unknown(word);
    placements.emplace_back(std::string(word.substr(0, colon)), *placement);
  }
  return placements;
}

}  // namespace ttrace
