// How far something is, in words for a person and as JSON for a program
// (docs/progress.md, which promises its keys).
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_CLI_PROGRESS_WORDS_H_
#define TTRACE_SRC_CLI_PROGRESS_WORDS_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/run/capture_progress.h"

namespace ttrace {

// How far a comparison is.
struct CheckProgress {
  int64_t tensors = 0;
  int64_t tensors_total = 0;  // 0: the traces are still being opened
  int64_t bytes = 0;          // read, of both sides
  double bytes_per_second = 0;
  double done = 0;     // of the work, 0 to 1
  double seconds = 0;  // since it began
  std::optional<double> seconds_left;
};

// "42 s", "4 min 05 s", "1 h 12 min".
std::string DurationWords(double seconds);

// The most important first.
std::vector<std::string> ProgressWords(const std::string& who,
                                       const CaptureProgress& progress);
std::vector<std::string> ProgressWords(const std::string& who,
                                       const CheckProgress& progress);

nlohmann::ordered_json ProgressFields(const CaptureProgress& progress);
nlohmann::ordered_json ProgressFields(const CheckProgress& progress);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_PROGRESS_WORDS_H_
