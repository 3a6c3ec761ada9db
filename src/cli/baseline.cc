// `ttrace baseline TRACE -o FOLDER`: a reference in summaries, to keep.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "src/base/format.h"
#include "src/cli/command.h"
#include "src/cli/live_line.h"
#include "src/in_place/condense_trace.h"
#include "src/run/free_space.h"
#include "src/run/output_folder.h"
#include "src/trace/reader.h"
#include "src/trace/segments/segment_pool.h"

namespace ttrace {
namespace {

constexpr const char* kBaselineFooter = R"(
Of each tensor a digest and a sketch are kept instead of its values, and of the
noise reruns what they differ by: small enough for a repository, and a check
against it says how far a candidate is, to some percent, wherever it is sharded
otherwise. What takes values is left out: weights and data cannot be grafted
from a baseline, and modules not be isolated. Start the candidate from the same
weights and data.
Exit codes: 0 once the baseline is written, 2 if it could not be.

Examples:
  ttrace baseline reference -o golden
  ttrace baseline reference -o smaller --buckets 256
  ttrace check golden candidate)";

struct BaselineArguments {
  std::string trace;
  std::string output;
  size_t buckets = kSketchBuckets;
  bool force = false;
};

int Baseline(const BaselineArguments& options) {
  RaiseOpenFileLimit();
  {
    // Before anything is replaced.
    const auto trace = Trace::Open(options.trace);
    if (!trace.ok()) return Complain(trace.error());
  }
  auto prepared =
      PrepareFolder(options.output, FolderKind::kTrace, options.force);
  if (!prepared.ok()) return Complain(prepared.error());
  std::optional<FolderLock> folder = *std::move(prepared);
  std::optional<LiveLine> line(std::in_place);
  CondenseOptions condense;
  condense.from = options.trace;
  condense.to = options.output;
  condense.buckets = options.buckets;
  condense.progress = [&](int64_t done, int64_t total) {
    line->Show({FormatCount(done) + " of " + FormatCount(total) + " tensors"});
  };
  const auto done = CondenseTrace(condense);
  line.reset();
  if (!done.ok()) {
    // What is there of it is no baseline.
    folder.reset();
    (void)RemoveTrace(options.output).ok();
    return Complain(done.error().message() + FullDiskWords(options.output));
  }
  std::printf("%s: %s of %s tensors are summaries, %s instead of %s\n",
              Printable(options.output).c_str(),
              FormatCount(done->summaries).c_str(),
              FormatCount(done->records).c_str(),
              FormatBytes(static_cast<double>(done->bytes_after)).c_str(),
              FormatBytes(static_cast<double>(done->bytes_before)).c_str());
  return 0;
}

}  // namespace

void AddBaseline(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "baseline", "Condense a reference to what later checks need of it.");
  const auto options = std::make_shared<BaselineArguments>();
  command->add_option("TRACE", options->trace, "a complete reference")
      ->required();
  command->add_option("-o,--output", options->output, "folder of the baseline")
      ->required();
  command
      ->add_option("--buckets", options->buckets,
                   "of a sketch: a distance is known to 1/sqrt(2 N) of it")
      ->check(CLI::IsMember({64, 128, 256, 512, 1024, 2048, 4096}))
      ->capture_default_str();
  command->add_flag("--force", options->force,
                    "replace what ttrace wrote to the folder before");
  command->footer(kBaselineFooter);
  command->callback([action, options] {
    *action = [options] { return Baseline(*options); };
  });
}

}  // namespace ttrace
