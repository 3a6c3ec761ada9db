#include "src/trace/format.h"

#include <charconv>

namespace ttrace {
namespace {

std::string Padded(int number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return digits;
}

std::optional<int> ParseNumber(std::string_view text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string RankFolderName(RankFolder folder) {
  return "rank-" + Padded(folder.rank) + ".r" + std::to_string(folder.restart);
}

std::optional<RankFolder> ParseRankFolderName(std::string_view name) {
  constexpr std::string_view kPrefix = "rank-";
  const size_t dot = name.find(".r");
  if (!name.starts_with(kPrefix) || dot == std::string_view::npos) {
    return std::nullopt;
  }
  const std::optional<int> rank =
      ParseNumber(name.substr(kPrefix.size(), dot - kPrefix.size()));
  const std::optional<int> restart = ParseNumber(name.substr(dot + 2));
  if (!rank || !restart) return std::nullopt;
  // Comparing with the canonical spelling leaves no second name for a folder.
  const RankFolder folder{*rank, *restart};
  if (RankFolderName(folder) != name) return std::nullopt;
  return folder;
}

std::string SegmentFileName(int segment) {
  return "segment-" + Padded(segment) + ".safetensors";
}

std::string Abridged(std::string_view text) {
  constexpr size_t kLongest = 120;
  if (text.size() <= kLongest) return std::string(text);
  return std::string(text.substr(0, kLongest)) + "...";
}

}  // namespace ttrace
