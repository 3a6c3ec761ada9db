// A command's text as a shell would part it, as far as that can be known
// without running anything.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_RUN_COMMAND_SHELL_TOKENS_H_
#define TTRACE_SRC_RUN_COMMAND_SHELL_TOKENS_H_

#include <string>
#include <vector>

namespace ttrace {

struct ShellToken {
  std::string text;          // of a word without its quotes
  bool is_operator = false;  // "&&", ";", "|", ">", "(", ...
  // Nothing in it that a shell replaces: a variable, a command's output, a
  // pattern, a home.
  bool is_literal = true;

  bool is_redirection() const {
    return is_operator && text.find_first_of("<>") != std::string::npos;
  }
};

// The end of a line is the operator ";". A quote that is not closed ends with
// the text. Comments are left out.
std::vector<ShellToken> ShellTokens(const std::string& command);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_COMMAND_SHELL_TOKENS_H_
