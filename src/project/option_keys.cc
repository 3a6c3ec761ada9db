#include "src/project/option_keys.h"

#include <algorithm>
#include <utility>

namespace ttrace {

std::vector<std::string> OptionKeys::NamesAnd(
    std::vector<std::string> others) const {
  for (const KnownOption& option : known_) others.push_back(option.name);
  return others;
}

Status OptionKeys::Read(const Project& project, const TomlEntry& entry,
                        GivenOptions* options) const {
  const KnownOption& known = *Find(entry.key);
  GivenOption given = {.value = "", .is_flag = known.is_flag, .at = entry.at};
  const auto other_type = [&](const char* wanted) {
    return project.Wrong(entry.at, entry.key + " is " +
                                       TypeWords(*entry.value) +
                                       "; it has to be " + wanted);
  };
  const auto flag = entry.value->value_exact<bool>();
  const auto number = entry.value->value_exact<int64_t>();
  if (known.is_flag) {
    if (!flag) return other_type("true or false");
    given.value = *flag ? "true" : "false";
  } else if (number) {
    given.value = std::to_string(*number);
  } else if (known.is_number) {
    return other_type("a whole number");
  } else if (!entry.value->is_string()) {
    return other_type("a text or a whole number");
  } else {
    TTRACE_ASSIGN_OR_RETURN(given.value, TextOf(project, entry));
  }
  options->insert_or_assign(entry.key, std::move(given));
  return Done{};
}

const KnownOption* OptionKeys::Find(const std::string& key) const {
  const auto found =
      std::find_if(known_.begin(), known_.end(),
                   [&](const KnownOption& o) { return o.name == key; });
  return found == known_.end() ? nullptr : &*found;
}

}  // namespace ttrace
