#include "src/cli/completion_scripts.h"

#include <algorithm>
#include <string_view>

namespace ttrace {
namespace {

using Texts = std::vector<std::string>;

// CLI11 says what a value may be in the name of its type: "TEXT:{a,b}".
Texts ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin);
  Texts choices;
  if (begin == std::string::npos || end == std::string::npos) return choices;
  size_t at = begin + 1;
  while (at <= end) {
    const size_t next = std::min(type.find(',', at), end);
    if (next > at) choices.push_back(type.substr(at, next - at));
    at = next + 1;
  }
  return choices;
}

// The first sentence is what fits beside a name.
std::string Brief(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  constexpr size_t kLongest = 100;
  const size_t end = text.find_first_of(";:(");
  if (end != std::string::npos && end > 0) text.resize(end);
  text.erase(text.find_last_not_of(' ') + 1);
  if (text.size() > kLongest) text.resize(kLongest);
  return text;
}

}  // namespace

// In single quotes for a POSIX shell, zsh and fish alike.
std::string ShellQuoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::vector<std::string> Dashed(const CompletedOption& option) {
  Texts names;
  for (const std::string& name : option.short_names) {
    names.push_back("-" + name);
  }
  for (const std::string& name : option.long_names) {
    names.push_back("--" + name);
  }
  return names;
}

std::vector<CompletedCommand> CompletedCommands(const CLI::App& app) {
  std::vector<CompletedCommand> commands;
  for (const CLI::App* one :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    CompletedCommand command;
    command.name = one->get_name();
    command.description = Brief(one->get_description());
    for (const CLI::Option* option : one->get_options()) {
      if (option->get_positional()) {
        command.choices = ChoicesOf(*option);
        command.words =
            !command.choices.empty() ? CompletedWords::kChoices
            : option->get_type_name().find("NAME") != std::string::npos ||
                    option->get_type_name().find("EXPERIMENT") !=
                        std::string::npos
                ? CompletedWords::kExperiments
                : CompletedWords::kFiles;
        continue;
      }
      command.options.push_back(
          {.short_names = option->get_snames(),
           .long_names = option->get_lnames(),
           .description = Brief(option->get_description()),
           .takes_value = option->get_items_expected_max() > 0,
           .choices = ChoicesOf(*option)});
    }
    if (command.name == "record") command.words = CompletedWords::kFiles;
    commands.push_back(std::move(command));
  }
  return commands;
}

}  // namespace ttrace
