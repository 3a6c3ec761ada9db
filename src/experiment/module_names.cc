#include "src/experiment/module_names.h"

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

}  // namespace ttrace
