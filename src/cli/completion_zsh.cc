#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/cli/completion_scripts.h"

namespace ttrace {
namespace {

// What _arguments takes apart by itself.
std::string ZshEscaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string ZshOption(const CompletedOption& option) {
  std::string value;
  if (option.takes_value) {
    value = option.choices.empty()
                ? ":value:_files"
                : fmt::format(":value:({})", fmt::join(option.choices, " "));
  }
  const std::string names = fmt::format("{}", fmt::join(Dashed(option), " "));
  std::string text;
  for (const std::string& name : Dashed(option)) {
    const bool equals = option.takes_value && name.starts_with("--");
    text += fmt::format("        {} \\\n",
                        ShellQuoted(fmt::format(
                            "({}){}{}[{}]{}", names, name, equals ? "=" : "",
                            ZshEscaped(option.description), value)));
  }
  return text;
}

std::string ZshWords(const CompletedCommand& command) {
  switch (command.words) {
    case CompletedWords::kNone:
      return "        && return\n";
    case CompletedWords::kFiles:
      return command.name == "record" ? "        '*:::command:_normal'\n"
                                      : "        '*:file:_files'\n";
    case CompletedWords::kExperiments:
      return "        '*:experiment:_ttrace_experiments'\n";
    case CompletedWords::kChoices:
      break;
  }
  return fmt::format("        '*:value:({})'\n",
                     fmt::join(command.choices, " "));
}

}  // namespace

std::string ZshCompletion(const std::vector<CompletedCommand>& commands) {
  std::string described;
  std::string cases;
  for (const CompletedCommand& command : commands) {
    described +=
        "    " + ShellQuoted(command.name + ":" + command.description) + "\n";
    cases += fmt::format("    {})\n      _arguments -s -S \\\n", command.name);
    for (const CompletedOption& option : command.options) {
      cases += ZshOption(option);
    }
    cases += ZshWords(command) + "      ;;\n";
  }
  return fmt::format(
      R"zsh(#compdef ttrace
# Completes ttrace in zsh: as _ttrace in a folder of $fpath, or
# source <(ttrace completion zsh)

_ttrace_experiments() {{
  local -a names
  local at=${{words[(i)--project]}}
  if (( at < $#words )); then
    names=(${{(f)"$(ttrace run --names --project ${{words[at + 1]}} 2> /dev/null)"}})
  else
    names=(${{(f)"$(ttrace run --names 2> /dev/null)"}})
  fi
  compadd -a names
}}

_ttrace() {{
  local -a commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}

if [[ $funcstack[1] == _ttrace ]]; then
  _ttrace "$@"
else
  compdef _ttrace ttrace
fi
)zsh",
      described, cases);
}

}  // namespace ttrace
