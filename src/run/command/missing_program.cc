#include "src/run/command/missing_program.h"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "src/base/format.h"
#include "src/base/misspelling.h"
#include "src/run/command/find_program.h"
#include "src/run/command/script_of_command.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// Nothing but one program and its words: no file is needed for what the shell
// does itself.
bool IsOneProgram(const std::string& command) {
  for (const ShellToken& token : ShellTokens(command)) {
    if (token.is_operator && !token.is_redirection()) return false;
    // The program is looked for elsewhere.
    if (token.text.starts_with("PATH=")) return false;
  }
  return true;
}

bool IsOfTheShell(const std::string& word) {
  for (const char* one :
       {".",      ":",      "[",     "alias",  "break",  "case",  "continue",
        "echo",   "eval",   "exit",  "export", "false",  "for",   "function",
        "kill",   "printf", "pwd",   "read",   "return", "set",   "shift",
        "source", "test",   "trap",  "true",   "ulimit", "umask", "unset",
        "wait",   "local",  "times", "type",   "}"}) {
    if (word == one) return true;
  }
  return false;
}

Status CheckProgram(const std::string& word, const std::string& folder,
                    const std::string& path) {
  if (FindProgram(word, folder, path)) return Done{};
  if (word.find('/') == std::string::npos) {
    return Error(ErrorCode::kNotFound,
                 "there is no program '" + Printable(word) + "' in PATH" +
                     DidYouMean(word, {"python", "python3", "torchrun",
                                       "accelerate", "deepspeed", "mpirun"}));
  }
  std::error_code missing;
  if (fs::exists(fs::path(folder) / word, missing)) {
    return Error(ErrorCode::kNotFound,
                 "'" + Printable(word) +
                     "' cannot be executed; chmod +x makes it a program");
  }
  return Error(ErrorCode::kNotFound, "there is no program '" + Printable(word) +
                                         "', seen from " + Printable(folder));
}

Status CheckScript(const std::string& file, const std::string& folder) {
  const fs::path path = fs::path(folder) / file;
  std::error_code missing;
  // What cannot be looked at may be there.
  if (fs::exists(path, missing) || missing) return Done{};
  std::vector<std::string> beside;
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator(path.parent_path(), ignored)) {
    beside.push_back(entry.path().filename().string());
  }
  return Error(ErrorCode::kNotFound,
               "there is no script '" + Printable(file) + "', seen from " +
                   Printable(folder) +
                   DidYouMean(path.filename().string(), beside));
}

}  // namespace

Status CheckProgramIsThere(const std::string& command,
                           const std::string& folder, const std::string& path) {
  // Without a PATH a shell has one of its own.
  if (path.empty() || !IsOneProgram(command)) return Done{};
  const std::vector<SimpleCommand> commands = SimpleCommands(command, folder);
  if (commands.size() != 1 || commands.front().folder != fs::path(folder)) {
    return Done{};
  }
  const ShellToken& program = commands.front().words.front();
  if (!program.is_literal || IsOfTheShell(program.text)) return Done{};
  TTRACE_RETURN_IF_ERROR(CheckProgram(program.text, folder, path));
  const GivenScript script = ScriptOf(commands.front());
  if (!script.is_direct || script.file.empty()) return Done{};
  return CheckScript(script.file, folder);
}

}  // namespace ttrace
