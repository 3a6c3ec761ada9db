#include "src/base/count_words.h"

#include <fmt/format.h>

#include "src/base/format.h"

namespace ttrace {

std::string Counted(int64_t count, std::string_view noun) {
  const char* ending = noun.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", FormatCount(count), noun,
                     count == 1 ? "" : ending);
}

std::string Examples(const std::vector<std::string>& names, int64_t count) {
  std::string out;
  for (const std::string& name : names) {
    if (!out.empty()) out += ", ";
    out += name.empty() ? "the model" : name;
  }
  if (count > static_cast<int64_t>(names.size())) out += ", ...";
  return out;
}

}  // namespace ttrace
