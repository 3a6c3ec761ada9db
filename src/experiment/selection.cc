#include "src/experiment/selection.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "src/base/format.h"

namespace ttrace {

Status CheckSelection(const std::string& text) {
  constexpr std::array<std::string_view, 4> kKeys = {"fqn", "role", "rank",
                                                     "micro_batch"};
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(';'), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::string_view key = word.substr(0, word.find('='));
    if (key.size() == word.size() ||
        std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      return Error(ErrorCode::kInvalidArgument,
                   "selection '" + Printable(word) +
                       "' is not KEY=PATTERN with one of the keys fqn, role, "
                       "rank, micro_batch");
    }
  }
  return Done{};
}

}  // namespace ttrace
