#include <algorithm>
#include <string_view>

#include "src/report/exports/exports.h"

namespace ttrace {

std::string LayerGroup(const std::string& fqn) {
  for (size_t begin = 0; begin < fqn.size();) {
    const size_t end = std::min(fqn.find('.', begin), fqn.size());
    const std::string_view part =
        std::string_view(fqn).substr(begin, end - begin);
    if (!part.empty() &&
        part.find_first_not_of("0123456789") == std::string_view::npos) {
      return fqn.substr(0, end);
    }
    begin = end + 1;
  }
  return fqn.substr(0, fqn.find('.'));
}

}  // namespace ttrace
