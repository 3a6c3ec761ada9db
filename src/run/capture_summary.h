// What a run under capture came to.

#ifndef TTRACE_SRC_RUN_CAPTURE_SUMMARY_H_
#define TTRACE_SRC_RUN_CAPTURE_SUMMARY_H_

#include <set>
#include <string>
#include <vector>

#include "src/experiment/iteration_range.h"
#include "ttrace/leg.h"

namespace ttrace {

// What a finished run left behind.
struct CaptureSummary {
  int iterations = 0;  // sealed in leg `leg` by every rank
  int world_size = 0;
  // How many launches more the legs need: no rank could replay.
  bool one_launch_per_leg = false;
  std::string why_launches;       // as the first rank that could not says it
  std::vector<Leg> skipped_legs;  // named in notes "leg_skipped"
  // What the run uses that cannot be judged, with the way out, one line each.
  // However much was captured, no verdict will stand on it.
  std::vector<std::string> unsupported;
  // What the reference's values were put in place of: "weights", "data".
  std::set<std::string> replaced;
  // Why there is nothing to check, and what to do about it; empty: there is.
  std::string problem;
  // Exceptions of which the command's Python processes died, those first that
  // are no consequence of another.
  std::vector<std::string> errors;
  // What the user should know although there is something, one line each.
  std::vector<std::string> warnings;
};

// Reads the trace in `folder`, of which iterations `asked` of `leg` were
// wanted.
CaptureSummary SummarizeCapture(const std::string& folder, const Leg& leg,
                                const IterationRange& asked);

// What a command that failed ran with, which may be why, and how it runs with
// its own: `option` says that. Empty if nothing of it was replaced.
std::string ReplacedWords(const CaptureSummary& summary,
                          const std::string& option);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_CAPTURE_SUMMARY_H_
