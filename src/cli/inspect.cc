// `ttrace inspect`: what a trace, one of its tensors, or a result holds.

#include "src/cli/inspect.h"

#include <cstdio>
#include <filesystem>
#include <memory>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/terminal.h"

namespace ttrace {
namespace {

constexpr const char* kInspectFooter = R"(
TENSOR is a name with * and ?, or a pattern on name and role together; '' is
the model itself.
Exit codes: 0 shown, 2 nothing to show.

Examples:
  ttrace inspect candidate
  ttrace inspect candidate "*layers.0*" --leg real --iteration 0
  ttrace inspect candidate --collectives
  ttrace inspect report/result.json)";

struct InspectArguments {
  std::string path;
  TensorQuery query;
  bool one_tensor = false;  // a pattern is given; the model's own name is ""
  bool collectives = false;
  bool all_notes = false;
};

Result<std::string> Describe(const InspectArguments& options) {
  const TerminalOptions terminal = StandardOutputOptions();
  const std::filesystem::path path = options.path;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    return DescribeResult(options.path, terminal);
  }
  // The folder of a diff: its result is what was meant.
  if (!std::filesystem::exists(path / "manifest.json", ignored) &&
      std::filesystem::exists(path / "result.json", ignored)) {
    return DescribeResult((path / "result.json").string(), terminal);
  }
  TTRACE_ASSIGN_OR_RETURN(auto trace, Trace::Open(options.path, 0));
  if (options.collectives) return DescribeCollectives(*trace, terminal);
  if (!options.one_tensor)
    return DescribeTrace(*trace, options.all_notes, terminal);
  return DescribeTensors(trace, options.query, terminal);
}

int Inspect(const InspectArguments& options) {
  const Result<std::string> text = Describe(options);
  if (!text.ok()) return Complain(text.error());
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace

void AddInspect(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what a trace, one of its tensors or a result holds.");
  const auto options = std::make_shared<InspectArguments>();
  TensorQuery& query = options->query;
  command
      ->add_option("PATH", options->path,
                   "a trace folder, a result.json, or the folder of a diff")
      ->required();
  CLI::Option* tensor =
      command->add_option("TENSOR", query.pattern, "which tensors to show");
  command->add_option("--leg", query.leg, "which run of the iteration")
      ->capture_default_str();
  command->add_option("--iteration", query.iteration, "only this one");
  command->add_option("--values", query.values, "first values of each piece")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  command->add_option("--limit", query.limit, "tensors to show")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  command->add_flag("--collectives", options->collectives,
                    "show what the ranks of a trace communicated");
  command->add_flag("--notes", options->all_notes,
                    "show what the ranks of a trace noted for a check, too, an "
                    "example of each kind as it was written");
  command->footer(kInspectFooter);
  command->callback([action, options, tensor] {
    options->one_tensor = tensor->count() > 0;
    *action = [options] { return Inspect(*options); };
  });
}

}  // namespace ttrace
