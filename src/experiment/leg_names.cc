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
Status ExpandWord(std::string_view word, std::vector<std::string>& legs) {
  if (word == "replay" || word == "fp32" || word == "isolated" ||
      word == "fp32.isolated") {
    legs.emplace_back(word);
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
      legs.push_back(std::string(family) + "." + std::to_string(k));
    }
    return Done{};
  }
  return BadLeg(word);
}

}  // namespace

Result<std::vector<std::string>> ExpandLegs(std::string_view text) {
  std::vector<std::string> legs;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (word.empty() || word == "real" || word == "none") continue;
    TTRACE_RETURN_IF_ERROR(ExpandWord(word, legs));
  }
  std::vector<std::string> unique;
  for (std::string& leg : legs) {
    if (std::find(unique.begin(), unique.end(), leg) == unique.end()) {
      unique.push_back(std::move(leg));
    }
  }
  return unique;
}

bool IsFp32Leg(std::string_view leg) {
  return leg == "fp32" || leg.starts_with("fp32.");
}

bool IsIsolatedLeg(std::string_view leg) {
  return leg.find("isolated") != std::string_view::npos;
}

bool IsNoiseLeg(std::string_view leg) {
  return leg.find("noise") != std::string_view::npos;
}

std::vector<std::string> PerturbedLegs(std::string_view noise_leg) {
  if (!IsNoiseLeg(noise_leg)) return {};
  if (IsFp32Leg(noise_leg)) return {"fp32"};
  return {"real", "replay"};
}

std::string LegFolder(const std::string& trace, const std::string& leg) {
  return (fs::path(trace) / "legs" / leg).string();
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
