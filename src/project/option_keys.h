// Keys of the project's file that are options of `ttrace diff`.
//
// Included by its .cc files alone, as toml_table.h is.

#ifndef TTRACE_SRC_PROJECT_OPTION_KEYS_H_
#define TTRACE_SRC_PROJECT_OPTION_KEYS_H_

#include <string>
#include <vector>

#include "src/project/project_file.h"
#include "src/project/toml_table.h"
#include "ttrace/status.h"

namespace ttrace {

class OptionKeys {
 public:
  // Keeps a reference to `known`.
  explicit OptionKeys(const std::vector<KnownOption>& known) : known_(known) {}

  bool Has(const std::string& key) const { return Find(key) != nullptr; }

  // `others` and the names of all options: what a table may have.
  std::vector<std::string> NamesAnd(std::vector<std::string> others) const;

  // Enters the option that `entry` is. Fails with kInvalidArgument, as
  // Project::Wrong says it, for a value of a type that it does not take.
  // REQUIRES: Has(entry.key)
  Status Read(const Project& project, const TomlEntry& entry,
              GivenOptions* options) const;

 private:
  const KnownOption* Find(const std::string& key) const;

  const std::vector<KnownOption>& known_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_PROJECT_OPTION_KEYS_H_
