#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/cli/completion_scripts.h"

namespace ttrace {

std::string FishCompletion(const std::vector<CompletedCommand>& commands) {
  std::string text =
      R"(# Completes ttrace in fish: ttrace completion fish | source

function __ttrace_experiments
    set -l words (commandline -opc)
    set -l at (contains -i -- --project $words)
    if test -n "$at"; and test $at -lt (count $words)
        ttrace run --names --project $words[(math $at + 1)] 2>/dev/null
    else
        ttrace run --names 2>/dev/null
    end
end

)";
  for (const CompletedCommand& command : commands) {
    text += fmt::format(
        "complete -c ttrace -f -n __fish_use_subcommand -a {} -d {}\n",
        command.name, ShellQuoted(command.description));
  }
  for (const CompletedCommand& command : commands) {
    const std::string start = fmt::format(
        "complete -c ttrace -n '__fish_seen_subcommand_from {}'", command.name);
    switch (command.words) {
      case CompletedWords::kNone:
        text += start + " -f\n";
        break;
      case CompletedWords::kFiles:
        break;
      case CompletedWords::kExperiments:
        text += start + " -f -a '(__ttrace_experiments)'\n";
        break;
      case CompletedWords::kChoices:
        text += start +
                fmt::format(" -f -a '{}'\n", fmt::join(command.choices, " "));
    }
    for (const CompletedOption& option : command.options) {
      text += start;
      for (const std::string& name : option.short_names) text += " -s " + name;
      for (const std::string& name : option.long_names) text += " -l " + name;
      if (!option.choices.empty()) {
        text += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      } else if (option.takes_value) {
        text += " -r -F";
      }
      text += " -d " + ShellQuoted(option.description) + "\n";
    }
  }
  return text;
}

}  // namespace ttrace
