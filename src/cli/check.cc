// `ttrace check [REF] CAND`: compare and judge traces that are there.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/format.h"
#include "src/check/merge_parts.h"
#include "src/check/part_file.h"
#include "src/cli/command.h"
#include "src/cli/live_line.h"
#include "src/cli/progress.h"
#include "src/cli/ray_engine.h"
#include "src/cli/verdict_output.h"
#include "src/cli/working_folder.h"
#include "src/experiment/iteration_range.h"
#include "src/experiment/leg_names.h"
#include "src/judge/constants.h"
#include "src/run/free_space.h"
#include "src/run/output_folder.h"
#include "src/trace/segments/segment_pool.h"

namespace ttrace {
namespace {

constexpr const char* kCheckFooter = R"(
Without a reference, what needs none is checked: copies that must be equal,
non-finite values, the gradient norm, the optimizer's steps.
Exit codes: 0 within bounds, 1 diverged, 2 could not decide; of a part, 0 once
it is written. docs/many_machines.md tells how to check on many machines.

Examples:
  ttrace check reference candidate
  ttrace check reference candidate -o verdict --junit verdict/junit.xml --sarif verdict/ttrace.sarif
  ttrace check reference candidate --iterations 1:2
  ttrace check before after --bitwise
  ttrace check reference candidate --legs noise:2,fp32,fp32.noise:2
  ttrace check candidate
  ttrace check reference candidate --part 1/2 --out-part parts/
  ttrace check reference candidate --part 2/2 --out-part parts/)";

struct CheckArguments {
  std::vector<std::string> traces;
  std::string output;
  std::string iterations;
  std::string legs;
  bool force = false;
  bool bitwise = false;
  bool verbose = false;
  int threads = 0;
  double risk = kRunRisk;
  std::string part;
  std::string out_part;
  std::string engine = "local";
  int parts = 0;
  std::string ray_address;
  ProgressOptions progress;
  ExportOptions exports;
};

// CheckArguments that say nothing together; empty: there are none.
std::string Contradiction(const CheckArguments& options) {
  if (options.part.empty() != options.out_part.empty()) {
    return "a part of a check takes both --part I/N and --out-part FILE";
  }
  if (!options.part.empty() && !options.output.empty()) {
    return "a part has no result yet: give -o to `ttrace merge`";
  }
  if (!options.part.empty() && options.exports.any()) {
    return "a part has no result yet: give --junit and the like to `ttrace "
           "merge`";
  }
  if (options.bitwise && options.traces.size() < 2) {
    return "--bitwise compares two traces: give the reference, too";
  }
  if (options.bitwise && !options.legs.empty()) {
    return "--bitwise compares the runs as they were: leave out --legs";
  }
  if (options.engine != "ray") {
    if (options.parts > 0) return "--parts is for --engine ray";
    if (!options.ray_address.empty()) {
      return "--ray-address is for --engine ray";
    }
  } else if (!options.part.empty()) {
    return "--engine ray makes all parts: leave out --part";
  } else if (options.exports.any()) {
    return "--engine ray writes result.json: give --junit and the like to "
           "`ttrace report`";
  }
  return "";
}

// Measures a part and writes it.
int CheckPart(CheckOptions check, const CheckArguments& options) {
  const auto share = ParseShare(options.part);
  if (!share.ok()) return Complain(share.error().WithContext("--part"));
  const std::string name = "part " + ToString(*share);
  RaiseOpenFileLimit();
  const std::string path = PartPath(options.out_part, *share);
  std::optional<CheckWatch> watch(std::in_place,
                                  ProgressTask{.side = "", .phase = "compare"});
  check.progress = watch->measured();
  const Status done =
      RunPart(check, HeadOf(check, *share, WorkingFolder()), path);
  watch.reset();
  if (!done.ok()) {
    return Complain(done.error().WithContext(name).message() +
                    FullDiskWords(path));
  }
  Say(name + " is measured: " + Printable(path));
  return 0;
}

int Check(const CheckArguments& options) {
  UseProgressOptions(options.progress);
  const std::string contradiction = Contradiction(options);
  if (!contradiction.empty()) return Complain(contradiction);
  const Status possible = CheckExports(options.exports, options.output);
  if (!possible.ok()) return Complain(possible.error());
  CheckOptions check;
  check.candidate = options.traces.back();
  check.candidate_legs = FindLegFolders(check.candidate);
  if (options.traces.size() == 2) {
    check.reference = options.traces.front();
    check.reference_legs = FindLegFolders(check.reference);
  }
  check.bitwise = options.bitwise;
  check.threads = options.threads;
  check.risk = options.risk;
  if (!options.iterations.empty()) {
    const auto range = ParseIterations(options.iterations);
    if (!range.ok()) return Complain(range.error());
    check.iterations = *range;
  }
  if (!options.legs.empty()) {
    const auto legs = ExpandLegs(options.legs);
    if (!legs.ok()) return Complain(legs.error().WithContext("--legs"));
    check.legs = *legs;
  }
  if (!options.part.empty()) return CheckPart(std::move(check), options);
  std::optional<FolderLock> folder;
  if (!options.output.empty()) {
    auto prepared =
        PrepareFolder(options.output, FolderKind::kReport, options.force,
                      ExportsIn(options.exports, options.output));
    if (!prepared.ok()) return Complain(prepared.error());
    folder = *std::move(prepared);
  }
  if (options.engine == "ray") {
    // `merge` takes the folder, which is there and empty now.
    folder.reset();
    RayCheck on_ray;
    on_ray.check = check;
    on_ray.parts = options.parts;
    on_ray.address = options.ray_address;
    on_ray.output = options.output;
    on_ray.verbose = options.verbose;
    return CheckOnRay(on_ray);
  }
  return CheckAndReport(check,
                        {options.output, options.verbose, options.exports});
}

}  // namespace

void AddCheck(CLI::App& app, Action* action) {
  CLI::App* command = app.add_subcommand(
      "check", "Compare a trace with a reference, judge it and explain.");
  const auto options = std::make_shared<CheckArguments>();
  command
      ->add_option("TRACE", options->traces,
                   "reference and candidate, or the candidate alone")
      ->required()
      ->expected(1, 2)
      ->type_name("[REF] CAND");
  command->add_option("--iterations", options->iterations,
                      "judge only these optimizer steps, FIRST:END");
  command->add_option("--legs", options->legs,
                      "judge as if of the reference's reruns it had only "
                      "these, as `record --legs` names them; "
                      "docs/evidence/legs.md shows what each is good for");
  command->add_flag("--bitwise", options->bitwise,
                    "whether both runs are the same computation bit for bit, "
                    "as after an upgrade, a resume or on another machine: what "
                    "differs at all is a finding, and no reruns are needed");
  command
      ->add_option("--risk", options->risk,
                   "how often a clean run may be flagged by chance")
      ->check(CLI::Range(1e-12, 0.5))
      ->capture_default_str();
  command->add_option("-o,--output", options->output,
                      "folder for result.json, report.txt and "
                      "index.html, a page for a browser");
  AddExportOptions(command, &options->exports);
  command->add_flag("--force", options->force,
                    "replace what ttrace wrote to the folder before");
  command->add_flag("-v,--verbose", options->verbose,
                    "list every tensor that is out of bounds");
  command
      ->add_option("--threads", options->threads, "as many as cores by default")
      ->check(CLI::Range(0, 1024));
  command
      ->add_option("--part", options->part,
                   "measure only this share of the check, 1/N to N/N; `ttrace "
                   "merge` makes the result of all")
      ->type_name("I/N");
  command
      ->add_option("--out-part", options->out_part,
                   "where the part goes; in a folder it gets a name")
      ->type_name("FILE|DIR/");
  command
      ->add_option("--engine", options->engine,
                   "ray: in parts on a Ray cluster (torch-ttrace[ray])")
      ->check(CLI::IsMember({"local", "ray"}))
      ->capture_default_str();
  command
      ->add_option("--parts", options->parts,
                   "for Ray; one for each CPU of the cluster by default")
      ->check(CLI::Range(1, kMostParts));
  command->add_option("--ray-address", options->ray_address,
                      "of a running cluster; by default one is started here");
  AddProgressOptions(command, &options->progress);
  command->footer(kCheckFooter);
  command->callback(
      [action, options] { *action = [options] { return Check(*options); }; });
}

}  // namespace ttrace
