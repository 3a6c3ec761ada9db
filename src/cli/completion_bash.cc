#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/cli/completion_scripts.h"

namespace ttrace {

std::string BashCompletion(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> names;
  std::string options_by_command;
  std::string values;
  std::string words;
  for (const CompletedCommand& command : commands) {
    names.push_back(command.name);
    std::vector<std::string> all;
    std::vector<std::string> files;
    for (const CompletedOption& option : command.options) {
      const std::vector<std::string> dashed = Dashed(option);
      all.insert(all.end(), dashed.begin(), dashed.end());
      if (!option.takes_value) continue;
      if (option.choices.empty()) {
        files.insert(files.end(), dashed.begin(), dashed.end());
        continue;
      }
      for (const std::string& name : dashed) {
        values += fmt::format(
            "    '{} {}') _ttrace_reply {}; return ;;\n", command.name, name,
            ShellQuoted(fmt::format("{}", fmt::join(option.choices, " "))));
      }
    }
    for (const std::string& name : files) {
      values += fmt::format("    '{} {}') _ttrace_files; return ;;\n",
                            command.name, name);
    }
    options_by_command +=
        fmt::format("    {}) options={} ;;\n", command.name,
                    ShellQuoted(fmt::format("{}", fmt::join(all, " "))));
    switch (command.words) {
      case CompletedWords::kNone:
        break;
      case CompletedWords::kFiles:
        words += fmt::format("    {}) _ttrace_files ;;\n", command.name);
        break;
      case CompletedWords::kExperiments:
        words +=
            fmt::format("    {}) _ttrace_reply \"$(_ttrace_experiments)\" ;;\n",
                        command.name);
        break;
      case CompletedWords::kChoices:
        words += fmt::format(
            "    {}) _ttrace_reply {} ;;\n", command.name,
            ShellQuoted(fmt::format("{}", fmt::join(command.choices, " "))));
    }
  }
  return fmt::format(
      R"(# Completes ttrace in bash: source <(ttrace completion bash)

_ttrace_reply() {{ COMPREPLY=($(compgen -W "$1" -- "$cur")); }}

_ttrace_files() {{
  compopt -o filenames 2> /dev/null
  local IFS=$'\n'
  COMPREPLY=($(compgen -f -- "$cur"))
}}

_ttrace_experiments() {{
  local i
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ ${{COMP_WORDS[i]}} == --project ]]; then
      "${{COMP_WORDS[0]}}" run --names --project "${{COMP_WORDS[i + 1]}}" 2> /dev/null
      return
    fi
  done
  "${{COMP_WORDS[0]}}" run --names 2> /dev/null
}}

_ttrace() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command=${{COMP_WORDS[1]}} options= i
  COMPREPLY=()
  # bash takes --keep=report apart at the equals sign.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  if ((COMP_CWORD == 1)); then
    _ttrace_reply '{} --help --version'
    return
  fi
  # What stands after -- is somebody else's.
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ ${{COMP_WORDS[i]}} == -- ]]; then
      _ttrace_files
      return
    fi
  done
  case "$command $prev" in
{}  esac
  case "$command" in
{}  esac
  if [[ $cur == -* ]]; then
    _ttrace_reply "$options"
    return
  fi
  case "$command" in
{}  esac
}}

complete -F _ttrace ttrace
)",
      fmt::join(names, " "), values, options_by_command, words);
}

}  // namespace ttrace
