// `ttrace completion SHELL`: a script that completes command lines.

#include <cstdio>
#include <memory>
#include <string>

#include "src/cli/command.h"
#include "src/cli/completion_scripts.h"

namespace ttrace {
namespace {

constexpr const char* kCompletionFooter = R"(
Completes commands, options, their values, files, and the experiments of
ttrace.toml. For every shell that is started from here on:
  bash: ttrace completion bash > ~/.local/share/bash-completion/completions/ttrace
  zsh:  ttrace completion zsh > FOLDER/_ttrace, with FOLDER one of $fpath
  fish: ttrace completion fish > ~/.config/fish/completions/ttrace.fish
Exit codes: 0; 2 for a shell that is not known.

Examples:
  ttrace completion bash > ttrace.bash
  ttrace completion zsh > _ttrace
  ttrace completion fish > ttrace.fish)";

}  // namespace

void AddCompletion(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "completion", "Print a script by which a shell completes ttrace.");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(kCompletionFooter);
  command->callback([action, shell, &app] {
    *action = [shell, &app] {
      const auto commands = CompletedCommands(app);
      const std::string script = *shell == "bash"  ? BashCompletion(commands)
                                 : *shell == "zsh" ? ZshCompletion(commands)
                                                   : FishCompletion(commands);
      std::fputs(script.c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace ttrace
