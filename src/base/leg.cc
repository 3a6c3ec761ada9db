#include "ttrace/leg.h"

#include <algorithm>

namespace ttrace {

bool Leg::HasWord(std::string_view word) const {
  std::string_view rest = name_;
  while (true) {
    const size_t dot = rest.find('.');
    if (rest.substr(0, dot) == word) return true;
    if (dot == std::string_view::npos) return false;
    rest.remove_prefix(dot + 1);
  }
}

bool Leg::is_fp32() const {
  return *this == kFp32 || name_.starts_with(kFp32.name() + ".");
}

bool Leg::is_isolated() const { return HasWord("isolated"); }

bool Leg::is_noise() const { return HasWord("noise"); }

bool Leg::IsNoiseOf(const Leg& plain) const {
  const std::string prefix =
      plain == kReal ? "noise." : plain.name() + ".noise.";
  return name_.size() > prefix.size() && name_.starts_with(prefix) &&
         std::all_of(name_.begin() + static_cast<std::ptrdiff_t>(prefix.size()),
                     name_.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<Leg> Leg::Perturbed() const {
  if (!is_noise()) return {};
  if (is_fp32()) return {kFp32};
  return {kReal, kReplay};
}

std::vector<std::string> NamesOf(const std::vector<Leg>& legs) {
  std::vector<std::string> names;
  for (const Leg& leg : legs) names.push_back(leg.name());
  return names;
}

}  // namespace ttrace
