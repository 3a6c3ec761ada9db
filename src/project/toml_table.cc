#include "src/project/toml_table.h"

#include <algorithm>

#include "src/base/format.h"

namespace ttrace {
namespace {

FilePosition PositionOf(const toml::source_region& region) {
  return {.line = region.begin.line, .column = region.begin.column};
}

Error OtherType(const Project& project, const TomlEntry& entry,
                const std::string& wanted) {
  return project.Wrong(entry.at, Printable(entry.key) + " is " +
                                     TypeWords(*entry.value) +
                                     "; it has to be " + wanted);
}

// What a command can be given: bytes up to a zero.
bool HasZero(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

}  // namespace

std::vector<TomlEntry> EntriesOf(const toml::table& table) {
  std::vector<TomlEntry> entries;
  for (const auto& [key, node] : table) {
    entries.push_back({.key = std::string(key.str()),
                       .at = PositionOf(key.source()),
                       .value = &node});
  }
  std::sort(entries.begin(), entries.end(),
            [](const TomlEntry& a, const TomlEntry& b) { return a.at < b.at; });
  return entries;
}

std::string TypeWords(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return node.as_string()->get().empty() ? "an empty text" : "a text";
    case toml::node_type::integer:
      return "a number";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

Result<std::string> TextOf(const Project& project, const TomlEntry& entry) {
  const auto text = entry.value->value_exact<std::string>();
  if (!text || text->empty()) return OtherType(project, entry, "a text");
  if (HasZero(*text)) {
    return project.Wrong(entry.at, Printable(entry.key) +
                                       " has a zero byte in it, which no "
                                       "command can be given");
  }
  return *text;
}

Result<const toml::table*> TableOf(const Project& project,
                                   const TomlEntry& entry) {
  const toml::table* table = entry.value->as_table();
  if (table == nullptr) return OtherType(project, entry, "a table");
  return table;
}

Result<Variables> VariablesOf(const Project& project, const TomlEntry& entry) {
  TTRACE_ASSIGN_OR_RETURN(const toml::table* table, TableOf(project, entry));
  Variables variables;
  for (const TomlEntry& variable : EntriesOf(*table)) {
    const std::string& name = variable.key;
    const auto value = variable.value->value_exact<std::string>();
    if (!value) {
      return OtherType(project, variable,
                       "a text, as all of an environment is: write it in "
                       "quotes");
    }
    if (name.empty() || name.find('=') != std::string::npos || HasZero(name) ||
        HasZero(*value)) {
      return project.Wrong(variable.at, "'" + Printable(name) +
                                            "' is no variable of an "
                                            "environment");
    }
    if (name.starts_with("TTRACE_")) {
      return project.Wrong(variable.at,
                           Printable(name) +
                               ": these names are ttrace's own, and what runs "
                               "under it does not see yours");
    }
    variables.emplace(name, *value);
  }
  return variables;
}

Result<std::vector<std::pair<std::string, FilePosition>>> TextsOf(
    const Project& project, const TomlEntry& entry) {
  const toml::array* array = entry.value->as_array();
  if (array == nullptr) return OtherType(project, entry, "a list of texts");
  std::vector<std::pair<std::string, FilePosition>> texts;
  for (const toml::node& node : *array) {
    const TomlEntry element = {.key = "an element of " + entry.key,
                               .at = PositionOf(node.source()),
                               .value = &node};
    TTRACE_ASSIGN_OR_RETURN(std::string text, TextOf(project, element));
    texts.emplace_back(std::move(text), element.at);
  }
  return texts;
}

}  // namespace ttrace
