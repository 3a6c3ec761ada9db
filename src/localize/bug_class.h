// The classes of bugs that a diagnosis can name. What each means:
// docs/result_schema.md.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_LOCALIZE_BUG_CLASS_H_
#define TTRACE_SRC_LOCALIZE_BUG_CLASS_H_

#include <cstdint>
#include <string_view>

#include "ttrace/tensor_id.h"

namespace ttrace {

enum class BugClass : uint8_t {
  kConstantFactor,        // K
  kMissingPartialSum,     // P
  kReplicasDiffer,        // R
  kStaleValue,            // S
  kPermutation,           // X: or a wrong owner
  kWrongSlice,            // W: or another group's data
  kMissingOrZero,         // M
  kGradientNorm,          // G: or clipping
  kLossNormalisation,     // L
  kNonFinite,             // N
  kOtherModelOrInputs,    // Z
  kLostPrecision,         // D
  kNotRepeatable,         // I
  kOtherHyperparameters,  // H
  kDropoutMasks,          // U
  kChangedBetweenSteps,   // C
};
inline constexpr int kBugClasses = 16;

// "P" of a missing partial sum: what results and reports call it.
std::string_view LetterOf(BugClass bug_class);
// "missing partial sum"
std::string_view NameOf(BugClass bug_class);
// Where a tensor of `role` shows it: one class holds all that makes two runs
// another computation, and which of it the role says.
std::string_view NameOf(BugClass bug_class, Role role);
// Of a letter; empty: of no class.
std::string_view NameOfLetter(std::string_view letter);

// What is said where no class is named.
inline constexpr std::string_view kNoClassWords =
    "no class named: none of those known fits";

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_BUG_CLASS_H_
