// The list of legs on a command line, and where a leg of its own launch lies.
//
// Thread safety: pure functions, but for reading the file system.

#ifndef TTRACE_SRC_PIPELINE_LAUNCH_LEGS_H_
#define TTRACE_SRC_PIPELINE_LAUNCH_LEGS_H_

#include <string>
#include <string_view>
#include <vector>

#include "ttrace/status.h"

namespace ttrace {

// What a reference is recorded with: enough for every tolerance.
inline constexpr std::string_view kReferenceLegs =
    "replay,noise:3,fp32,fp32.noise:3";
// What `diff` records of a candidate.
inline constexpr std::string_view kCandidateLegs = "replay,fp32";

// "replay,noise:2" -> {"replay", "noise.1", "noise.2"}, without repetitions.
// "real" is implied and may be named; "none" and "" are no legs.
//
// Fails with kInvalidArgument for an unknown word or count, kUnsupported for a
// leg that is planned but not there yet.
Result<std::vector<std::string>> ExpandLegs(std::string_view text);

// Where the trace of `leg` lies if it took a launch of its own:
// <trace>/legs/<leg>, so that a bundle stays one folder.
std::string LegFolder(const std::string& trace, const std::string& leg);

// All such folders that `trace` has, sorted.
std::vector<std::string> FindLegFolders(const std::string& trace);

}  // namespace ttrace

#endif  // TTRACE_SRC_PIPELINE_LAUNCH_LEGS_H_
