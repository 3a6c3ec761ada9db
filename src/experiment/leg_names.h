// The list of legs on a command line, and where a leg of its own launch lies.
//
// Thread safety: pure functions, but for reading the file system.

#ifndef TTRACE_SRC_EXPERIMENT_LEG_NAMES_H_
#define TTRACE_SRC_EXPERIMENT_LEG_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

#include "ttrace/leg.h"
#include "ttrace/status.h"

namespace ttrace {

// What a reference is recorded with: noise of every kind that a tolerance is
// made of, in 20 steps of low precision (docs/evidence/legs.md). Noise one
// module deep does not compound, so fewer legs of it are enough.
inline constexpr std::string_view kReferenceLegs =
    "replay,noise:3,fp32,fp32.noise:2,isolated.noise:2,fp32.isolated.noise:1";
// Of a reference of which only summaries are kept: without those that take its
// values.
inline constexpr std::string_view kSummarizedReferenceLegs =
    "replay,noise:3,fp32,fp32.noise:3";
// What `diff`, and `record --graft`, record of a candidate. Isolated legs need
// a reference to take values from (--graft); a run without one isolates itself
// from itself.
inline constexpr std::string_view kCandidateLegs =
    "replay,fp32,isolated,fp32.isolated";

// "replay,noise:2" -> {"replay", "noise.1", "noise.2"}, without repetitions.
// "real" is implied and may be named; "none" and "" are no legs.
//
// Fails with kInvalidArgument for an unknown word or count.
Result<std::vector<Leg>> ExpandLegs(std::string_view text);

// Where the trace of `leg` lies if it took a launch of its own:
// <trace>/legs/<leg>, so that a bundle stays one folder.
std::string LegFolder(const std::string& trace, const Leg& leg);

// All such folders that `trace` has, sorted.
std::vector<std::string> FindLegFolders(const std::string& trace);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_LEG_NAMES_H_
