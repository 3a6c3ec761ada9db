// What each tensor that is out of bounds is to the places that were named.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_LOCALIZE_CAUSES_H_
#define TTRACE_SRC_LOCALIZE_CAUSES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/judge/judgement.h"
#include "src/localize/culprit.h"

namespace ttrace {

struct TensorCause {
  enum class As : uint8_t {
    kFirst,       // shows the culprit first
    kSame,        // the same fault in another tensor, or in a later iteration
    kDownstream,  // later than the culprit, and no fault of its own
  };
  int culprit = -1;  // index; -1: none, and nothing else is said
  As as = As::kDownstream;
};
std::string_view ToString(TensorCause::As as);  // "first", "same", "downstream"

// Of each tensor. What no culprit shows follows from the last one before it in
// its own iteration, or else from the first of all that are before it. What a
// run says of itself is before what its part of the iteration makes: a setting
// of a step before all that the step leaves. Masks are before nothing: they are
// those of the untouched run, and compared are runs without dropout.
// REQUIRES: `tensors` are sorted by TensorJudgement::order.
std::vector<TensorCause> CausesOf(const std::vector<TensorJudgement>& tensors,
                                  const std::vector<Culprit>& culprits);

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_CAUSES_H_
