// P: copies differ, and are terms of a sum that was never made.
//
// Thread safety: pure function of const inputs.

#ifndef TTRACE_SRC_DIAGNOSE_RULES_SUM_OF_COPIES_H_
#define TTRACE_SRC_DIAGNOSE_RULES_SUM_OF_COPIES_H_

#include <optional>

#include "src/diagnose/value_view.h"

namespace ttrace {

// The sum of the copies over some mesh dimensions is the reference, or is that
// times a product of sizes of the run; of the whole tensor, or of all elements
// that are wrong where others are right (a reduction that ends too early).
std::optional<Diagnosis> SumOfCopies(const ValueView& view);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_RULES_SUM_OF_COPIES_H_
