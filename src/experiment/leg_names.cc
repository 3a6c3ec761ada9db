#include "src/experiment/leg_names.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "src/base/format.h"
#include "src/trace/format.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr int kMostNoiseLegs = 99;

Error BadLeg(std::string_view word) {
  return Error(ErrorCode::kInvalidArgument,
               "unknown leg '" + Printable(word) +
                   "'; there are replay, fp32, isolated, noise[:N] or noise.K, "
                   "isolated.noise[:N] or isolated.noise.K, and the last three "
                   "in fp32: fp32.isolated, fp32.noise:2");
}

// A number from 1 to kMostNoiseLegs without anything around it, or 0.
int ParseCount(std::string_view text) {
  int count = 0;
  const auto parsed =
      std::from_chars(text.data(), text.data() + text.size(), count);
  const bool whole =
      parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return whole && count >= 1 && count <= kMostNoiseLegs ? count : 0;
}

// Appends the legs that one word of the list stands for.
Status ExpandWord(std::string_view word, std::vector<Leg>& legs) {
  for (const Leg& leg : {kReplay, kFp32, kIsolated, kFp32Isolated}) {
    if (word != leg.name()) continue;
    legs.push_back(leg);
    return Done{};
  }
  for (const std::string_view family :
       {"fp32.isolated.noise", "isolated.noise", "fp32.noise", "noise"}) {
    if (!word.starts_with(family)) continue;
    const std::string_view rest = word.substr(family.size());
    const bool one = rest.starts_with('.');
    const int count = rest.empty() ? 1 : ParseCount(rest.substr(1));
    if (count == 0 || (!rest.empty() && !one && !rest.starts_with(':'))) break;
    for (int k = one ? count : 1; k <= count; ++k) {
      legs.emplace_back(std::string(family) + "." + std::to_string(k));
    }
    return Done{};
  }
  return BadLeg(word);
}

}  // namespace

Result<std::vector<Leg>> ExpandLegs(std::string_view text) {
  std::vector<Leg> legs;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (word.empty() || word == kReal.name() || word == "none") continue;
    TTRACE_RETURN_IF_ERROR(ExpandWord(word, legs));
  }
  std::vector<Leg> unique;
  for (Leg& leg : legs) {
    if (std::find(unique.begin(), unique.end(), leg) == unique.end()) {
      unique.push_back(std::move(leg));
    }
  }
  return unique;
}

std::string LegFolder(const std::string& trace, const Leg& leg) {
  return (fs::path(trace) / "legs" / leg.name()).string();
}

std::vector<std::string> FindLegFolders(const std::string& trace) {
  std::vector<std::string> folders;
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(trace) / "legs", ignored)) {
    std::error_code missing;
    if (fs::exists(entry.path() / kManifestFile, missing)) {
      folders.push_back(entry.path().string());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace ttrace
