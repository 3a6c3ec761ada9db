// Scripts by which shells complete the words of a `ttrace` command line.
//
// Thread safety: pure functions, while nobody changes the App.

#ifndef TTRACE_SRC_CLI_COMPLETION_SCRIPTS_H_
#define TTRACE_SRC_CLI_COMPLETION_SCRIPTS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// What can follow on a command line, from what its parser knows.
struct CompletedOption {
  std::vector<std::string> short_names;  // without dashes
  std::vector<std::string> long_names;
  std::string description;
  bool takes_value = false;
  std::vector<std::string> choices;  // of the value; empty: a file, or anything
};
enum class CompletedWords { kNone, kFiles, kExperiments, kChoices };
struct CompletedCommand {
  std::string name;
  std::string description;
  std::vector<CompletedOption> options;
  CompletedWords words = CompletedWords::kNone;
  std::vector<std::string> choices;
};

// The subcommands of `app`.
std::vector<CompletedCommand> CompletedCommands(const CLI::App& app);

// In single quotes, for all of these shells alike.
std::string ShellQuoted(std::string_view text);
// All names of an option, with their dashes.
std::vector<std::string> Dashed(const CompletedOption& option);

std::string BashCompletion(const std::vector<CompletedCommand>& commands);
std::string ZshCompletion(const std::vector<CompletedCommand>& commands);
std::string FishCompletion(const std::vector<CompletedCommand>& commands);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_COMPLETION_SCRIPTS_H_
