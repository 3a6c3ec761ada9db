#include "src/run/command/script_of_command.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace ttrace {
namespace {

using Words = std::vector<ShellToken>;

std::string NameOf(const ShellToken& word) {
  return std::filesystem::path(word.text).filename().string();
}

// "python", "python3", "python3.11", "pypy3"
bool IsPython(const std::string& program) {
  for (const std::string_view name : {"python", "pypy"}) {
    if (!program.starts_with(name)) continue;
    if (program.find_first_not_of("0123456789.", name.size()) ==
        std::string::npos) {
      return true;
    }
  }
  return false;
}

bool IsModuleFlag(const std::string& word) {
  return word == "-m" || word == "--module";
}

// Of a launcher, of whose options it is not known which take a value: behind
// `begin`.
GivenScript Launched(const Words& words, size_t begin) {
  GivenScript out;
  const auto from = words.begin() + static_cast<std::ptrdiff_t>(begin);
  const bool module = std::any_of(from, words.end(), [](const auto& word) {
    return IsModuleFlag(word.text);
  });
  for (auto it = from; it != words.end(); ++it) {
    if (it->text.starts_with('-') || !it->is_literal) continue;
    if (module) {
      out.modules.push_back(it->text);
    } else if (it->text.ends_with(".py")) {
      out.file = it->text;
      return out;
    }
  }
  return out;
}

// Modules that start ranks of what they are given, and others that run it.
bool RunsAnother(const std::string& module) {
  for (const char* one :
       {"torch.distributed.run", "torch.distributed.launch",
        "accelerate.commands.launch", "cProfile", "profile", "pdb", "trace"}) {
    if (module == one) return true;
  }
  return false;
}

GivenScript OfModule(const Words& words, const std::string& module,
                     size_t behind) {
  if (RunsAnother(module)) return Launched(words, behind);
  GivenScript out;
  out.modules = {module};
  return out;
}

// `at`: of the interpreter.
GivenScript OfPython(const Words& words, size_t at) {
  GivenScript out;
  for (size_t i = at + 1; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    if (!word.starts_with('-')) {
      if (words[i].is_literal) out.file = word;
      return out;
    }
    if (word == "--check-hash-based-pycs") ++i;
    if (word.starts_with("--")) continue;
    // "-um" is -u -m; what a letter takes may stand behind it: "-mpkg".
    const size_t letter = word.find_first_of("mcWX", 1);
    if (letter == std::string::npos) continue;
    const std::string rest = word.substr(letter + 1);
    if (word[letter] == 'c') {
      out.is_text = true;
      return out;
    }
    if (rest.empty()) ++i;
    if (word[letter] != 'm') continue;
    if (i >= words.size() || !words[i].is_literal) return out;
    return OfModule(words, rest.empty() ? words[i].text : rest, i + 1);
  }
  return out;
}

}  // namespace

GivenScript ScriptOf(const SimpleCommand& command) {
  const Words& words = command.words;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string name = NameOf(words[i]);
    // What a shell is given is a command of its own; see SimpleCommands.
    if (IsShell(name)) return {};
    if (!IsPython(name) && name != "torchrun") continue;
    GivenScript out =
        name == "torchrun" ? Launched(words, i + 1) : OfPython(words, i);
    out.is_direct = i == 0;
    return out;
  }
  return Launched(words, 0);
}

}  // namespace ttrace
