#include "src/experiment/module_names.h"

#include <algorithm>

namespace ttrace {

std::string ParentName(std::string_view fqn) {
  const size_t dot = fqn.rfind('.');
  return dot == std::string_view::npos ? std::string()
                                       : std::string(fqn.substr(0, dot));
}

bool IsBelow(std::string_view fqn, std::string_view ancestor) {
  if (fqn.empty()) return false;
  if (ancestor.empty()) return true;
  return fqn.size() > ancestor.size() && fqn.starts_with(ancestor) &&
         fqn[ancestor.size()] == '.';
}

std::string WithoutLayerNumbers(std::string_view fqn) {
  std::string out;
  for (size_t begin = 0; begin <= fqn.size();) {
    const size_t end = std::min(fqn.find('.', begin), fqn.size());
    const std::string_view word = fqn.substr(begin, end - begin);
    const bool number = !word.empty() && word.find_first_not_of("0123456789") ==
                                             std::string_view::npos;
    if (begin > 0) out += '.';
    out += number ? std::string_view("#") : word;
    begin = end + 1;
  }
  return out;
}

}  // namespace ttrace
