// The programs that a command's text starts, each with its words and where it
// runs: `cd sub && torchrun train.py`, `bash -c "..."`.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_RUN_COMMAND_SIMPLE_COMMANDS_H_
#define TTRACE_SRC_RUN_COMMAND_SIMPLE_COMMANDS_H_

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/run/command/shell_tokens.h"

namespace ttrace {

struct SimpleCommand {
  // The program and what it is given: without what sets variables in front of
  // it, and without what only starts another program (env, nohup, exec, ...).
  // Never empty.
  std::vector<ShellToken> words;
  // What else may name a file: values of variables in front of it, and where
  // redirections lead.
  std::vector<std::string> others;
  // Where it runs; nothing: a `cd` leads to where one cannot know.
  std::optional<std::filesystem::path> folder;

  // The program without its folder.
  std::string program() const {
    return std::filesystem::path(words.front().text).filename().string();
  }
};

// In the order of the text, with those of texts that a shell in it is given.
// `folder`: where it runs. What a condition decides is taken to happen.
std::vector<SimpleCommand> SimpleCommands(const std::string& command,
                                          const std::filesystem::path& folder);

// Whether `program`, without its folder, runs the text behind -c.
bool IsShell(const std::string& program);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_COMMAND_SIMPLE_COMMANDS_H_
