// Which vector instructions the kernels use: the best that the machine has, or
// what the environment names, for bug reports and to compare machines. Results
// are the same bit by bit but for the sums of a comparison where there is no
// fused multiply-add (SSE4 and below).
//
// Thread safety: limit before other threads start; the rest may be called any
// time.

#ifndef TTRACE_SRC_NUMERIC_INSTRUCTION_SET_H_
#define TTRACE_SRC_NUMERIC_INSTRUCTION_SET_H_

#include <string>
#include <string_view>
#include <vector>

#include "ttrace/status.h"

namespace ttrace {

inline constexpr char kInstructionSetVariable[] = "TTRACE_INSTRUCTION_SET";

// What is in use, as Highway calls it: "AVX3" is AVX-512.
std::string InstructionSet();

// All that can be used here, best first.
std::vector<std::string> InstructionSets();

// From now on uses `name` or what is below it. Fails with kInvalidArgument, and
// names those that can be used, if it is none of them; an empty name lifts an
// earlier limit.
Status LimitInstructionSet(std::string_view name);

// As the environment says, if it does.
Status LimitInstructionSetByEnvironment();

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_INSTRUCTION_SET_H_
