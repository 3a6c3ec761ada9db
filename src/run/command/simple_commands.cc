#include "src/run/command/simple_commands.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

namespace ttrace {
namespace {

namespace fs = std::filesystem;

using Folder = std::optional<fs::path>;

constexpr int kDeepest = 8;  // shells in shells

bool IsOneOf(const std::string& word,
             std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "NAME=value"
bool SetsVariable(const ShellToken& word) {
  const size_t equals = word.text.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  return std::all_of(
      word.text.begin(),
      word.text.begin() + static_cast<std::ptrdiff_t>(equals),
      [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

// What starts the program behind it and changes nothing that is asked here.
bool OnlyStarts(const std::string& word) {
  return IsOneOf(word, {"env", "exec", "nohup", "time", "command", "nice",
                        "stdbuf", "timeout", "setsid", "!", "{", "if", "then",
                        "elif", "else", "do", "while", "until"});
}

// Options of such a program whose value is a word of its own.
bool TakesValue(const std::string& program, const std::string& option) {
  return (program == "env" && IsOneOf(option, {"-u", "-S"})) ||
         (program == "nice" && option == "-n") ||
         (program == "stdbuf" && IsOneOf(option, {"-i", "-o", "-e"})) ||
         (program == "timeout" && IsOneOf(option, {"-s", "-k"}));
}

class CommandReader {
 public:
  explicit CommandReader(std::vector<SimpleCommand>* out) : out_(*out) {}

  void Read(const std::string& text, Folder folder, int depth) {
    if (depth > kDeepest) return;
    std::vector<Folder> outer;  // of the parentheses that are open
    SimpleCommand now;
    const auto end = [&] {
      now.folder = folder;
      Take(std::exchange(now, {}), &folder, depth);
    };
    const std::vector<ShellToken> tokens = ShellTokens(text);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const ShellToken& token = tokens[i];
      if (!token.is_operator) {
        now.words.push_back(token);
      } else if (token.is_redirection()) {
        if (i + 1 < tokens.size() && !tokens[i + 1].is_operator) {
          now.others.push_back(tokens[++i].text);
        }
      } else {
        end();
        if (token.text == "(") {
          outer.push_back(folder);
        } else if (token.text == ")" && !outer.empty()) {
          folder = std::move(outer.back());
          outer.pop_back();
        }
      }
    }
    end();
  }

 private:
  // Of a command that is whole: what it means for those behind it.
  void Take(SimpleCommand command, Folder* folder, int depth) {
    StripStarters(&command);
    if (command.words.empty()) return;
    const std::string program = command.program();
    if (IsOneOf(program, {"cd", "pushd"})) {
      *folder = After(command);
      return;
    }
    const std::string inner = TextForShell(command);
    const Folder where = command.folder;
    out_.push_back(std::move(command));
    if (!inner.empty()) Read(inner, where, depth + 1);
  }

  // `env -C sub A=1 nice -n 3 python` -> `python`, run in sub.
  static void StripStarters(SimpleCommand* command) {
    std::vector<ShellToken>& words = command->words;
    size_t at = 0;
    while (at < words.size()) {
      if (SetsVariable(words[at])) {
        const std::string& text = words[at++].text;
        command->others.push_back(text.substr(text.find('=') + 1));
        continue;
      }
      const std::string starter = words[at].text;
      if (!OnlyStarts(starter)) break;
      for (++at; at < words.size() && words[at].text.starts_with('-'); ++at) {
        const std::string& option = words[at].text;
        if (starter == "env" && IsOneOf(option, {"-C", "--chdir"}) &&
            at + 1 < words.size()) {
          command->folder = Below(command->folder, words[++at]);
        } else if (TakesValue(starter, option)) {
          ++at;
        }
      }
      if (starter == "timeout") ++at;  // how long
    }
    at = std::min(at, words.size());
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at));
  }

  static Folder Below(const Folder& folder, const ShellToken& to) {
    if (!to.is_literal) return std::nullopt;
    if (to.text.starts_with('/')) return fs::path(to.text);
    if (!folder) return std::nullopt;
    const fs::path below = (*folder / to.text).lexically_normal();
    return below.has_filename() ? below : below.parent_path();
  }

  // Where `cd` leads.
  static Folder After(const SimpleCommand& command) {
    for (size_t i = 1; i < command.words.size(); ++i) {
      const ShellToken& word = command.words[i];
      if (!word.text.starts_with('-')) return Below(command.folder, word);
    }
    return std::nullopt;  // the home
  }

  // The text that a shell among the words is given; "": none.
  static std::string TextForShell(const SimpleCommand& command) {
    const std::vector<ShellToken>& words = command.words;
    if (command.program() == "eval") {
      std::string text;
      for (size_t i = 1; i < words.size(); ++i) text += words[i].text + " ";
      return text;
    }
    const auto shell = std::find_if(words.begin(), words.end(), [](auto& word) {
      return IsShell(fs::path(word.text).filename().string());
    });
    bool runs_text = false;
    for (auto it = shell; it != words.end(); ++it) {
      if (it == shell) continue;
      const std::string& word = it->text;
      if (!word.starts_with('-')) return runs_text ? word : "";
      runs_text |= !word.starts_with("--") && word.find('c') != word.npos;
    }
    return "";
  }

  std::vector<SimpleCommand>& out_;
};

}  // namespace

bool IsShell(const std::string& program) {
  return IsOneOf(program, {"sh", "bash", "dash", "zsh", "ksh"});
}

std::vector<SimpleCommand> SimpleCommands(const std::string& command,
                                          const fs::path& folder) {
  std::vector<SimpleCommand> out;
  CommandReader(&out).Read(command, folder, 0);
  return out;
}

}  // namespace ttrace
