// What project_file.cc reads of a TOML document: values of a type, or an Error
// that says where the other one stands.
//
// Included by its .cc files alone: the parser is a header of seconds.

#ifndef TTRACE_SRC_PROJECT_TOML_TABLE_H_
#define TTRACE_SRC_PROJECT_TOML_TABLE_H_

// Errors are values, and there is no library to link: a wheel brings none.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <string>
#include <utility>
#include <vector>

#include "src/project/project_file.h"
#include "ttrace/status.h"

namespace ttrace {

struct TomlEntry {
  std::string key;
  FilePosition at;  // of the key
  const toml::node* value = nullptr;
};

// In the order of the file.
std::vector<TomlEntry> EntriesOf(const toml::table& table);

// "a text", "a number", ...: what a value is.
std::string TypeWords(const toml::node& node);

// Each fails with kInvalidArgument, as Project::Wrong says it, for a value of
// another type. A text without any character is one of another type, too.
Result<std::string> TextOf(const Project& project, const TomlEntry& entry);
Result<const toml::table*> TableOf(const Project& project,
                                   const TomlEntry& entry);
Result<Variables> VariablesOf(const Project& project, const TomlEntry& entry);
Result<std::vector<std::pair<std::string, FilePosition>>> TextsOf(
    const Project& project, const TomlEntry& entry);

}  // namespace ttrace

#endif  // TTRACE_SRC_PROJECT_TOML_TABLE_H_
