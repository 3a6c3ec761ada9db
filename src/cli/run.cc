#include "src/cli/run.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/format.h"
#include "src/base/misspelling.h"
#include "src/cli/command.h"
#include "src/cli/live_line.h"
#include "src/numeric/instruction_set.h"
#include "ttrace/version.h"

namespace ttrace {
namespace {

constexpr const char* kRunFooter = R"(
Examples:
  ttrace diff -o report --reference "python train.py" --candidate "python train.py --tp 2"
  ttrace record -o candidate -- python train.py --tp 2
  ttrace check reference candidate
  ttrace inspect candidate
  ttrace run --all

Exit codes: 0 within bounds, 1 diverged, 2 could not decide. `record` passes
the command's own exit code on. `ttrace COMMAND --help` tells more.)";

// CLI11's help, with what it cannot know: that record takes a command.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, name);
    if (app->get_name() != "record") return usage;
    usage.erase(usage.find_last_not_of('\n') + 1);
    return usage + " -- COMMAND...\n\n";
  }
};

// The subcommand that was being parsed, or the program.
const CLI::App& Current(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.front();
}

std::vector<std::string> KnownOptions(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

std::vector<std::string> KnownCommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// What to say about a word that the parser had no use for.
std::string Unexpected(const CLI::App& app, const CLI::App& current,
                       const std::string& word) {
  const bool option = word.starts_with("-");
  const bool program = &app == &current;
  std::string text;
  if (option) {
    text = "unknown option " + Printable(word);
  } else if (program) {
    text = "unknown command '" + Printable(word) + "'";
  } else {
    text = "unexpected argument '" + Printable(word) + "'";
  }
  std::string guess;
  if (option) {
    guess = Nearest(word.substr(0, word.find('=')), KnownOptions(current));
  } else if (program) {
    guess = Nearest(word, KnownCommands(app));
  }
  if (!guess.empty()) return text + "; did you mean " + guess + "?";
  if (current.get_name() == "record") {
    return text +
           "; put -- before the command to record:\n"
           "  ttrace record -o DIR -- COMMAND...";
  }
  if (current.get_name() == "diff" && !option) {
    return text +
           "; quote each command, so that it is one argument:\n"
           "  ttrace diff -o DIR --reference \"python train.py\" --candidate "
           "\"python train.py --tp 2\"";
  }
  return text;
}

int ReportParseError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& current = Current(app);
  std::string message = error.what();
  const std::vector<std::string> extra = app.remaining(true);
  if (!extra.empty()) message = Unexpected(app, current, extra.front());
  const std::string command =
      &current == &app ? "ttrace" : "ttrace " + current.get_name();
  Complain(message);
  std::fprintf(stderr, "See '%s --help'.\n", command.c_str());
  return kCouldNotDecide;
}

// What was printed has to have arrived: a verdict on a full disk is none. A
// reader that has seen enough (`| head`) needs no message.
int FlushOutput(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  const int error = errno;
  std::clearerr(stdout);
  if (error == EPIPE) return kCouldNotDecide;
  return Complain(std::string("cannot write to standard output: ") +
                  std::strerror(error));
}

int RunCommandLine(int argc, char** argv, std::string_view python) {
  if (const Status limited = LimitInstructionSetByEnvironment();
      !limited.ok()) {
    return Complain(limited.error());
  }
  CommandLine line;
  line.python = python;
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    if (!line.has_dashes && std::string_view(argv[i]) == "--") {
      line.has_dashes = true;
    } else {
      (line.has_dashes ? line.after_dashes : words).emplace_back(argv[i]);
    }
  }

  CLI::App app(
      "Finds, places and explains silent bugs in distributed training by "
      "comparing a run with a trusted one.",
      "ttrace");
  app.set_version_flag("--version", "ttrace " + std::string(kVersion) + " (" +
                                        InstructionSet() + ")");
  app.footer(kRunFooter);
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(0, 1);
  Action action;
  AddDiff(app, &action);
  AddRecord(app, line, &action);
  AddCheck(app, &action);
  AddRun(app, &action);
  AddMerge(app, &action);
  AddBaseline(app, line, &action);
  AddReport(app, &action);
  AddInspect(app, &action);
  AddCompletion(app, &action);
  AddDoctor(app, &action);
  AddVersion(app, line, &action);
  try {
    // CLI11 takes them from the back.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    std::cout.flush();
    return std::cout.good() ? 0 : Complain("cannot write to standard output");
  } catch (const CLI::ParseError& error) {
    return ReportParseError(app, error);
  }
  if (!action) {
    std::fputs(app.help().c_str(), stderr);
    return kCouldNotDecide;
  }
  const std::string chosen = Current(app).get_name();
  if (line.has_dashes && chosen != "record" && chosen != "baseline") {
    return Complain(
        "only `ttrace record` and `ttrace baseline` take a command after --");
  }
  return action();
}

}  // namespace

int Complain(const std::string& message) {
  ClearLiveLine();
  std::fprintf(stderr, "ttrace: %s\n", message.c_str());
  return kCouldNotDecide;
}

int Complain(const Error& error) { return Complain(error.message()); }

int RunCli(int argc, char** argv, std::string_view python) {
  try {
    return FlushOutput(RunCommandLine(argc, argv, python));
  } catch (const std::exception& error) {
    // Only what no code can foresee comes here: memory that ran out.
    return Complain(std::string("internal error: ") + error.what());
  }
}

}  // namespace ttrace
