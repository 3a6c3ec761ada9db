// The instances that hold each element of a tensor once.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_COMPARE_FIRST_COPIES_H_
#define TTRACE_SRC_COMPARE_FIRST_COPIES_H_

#include <vector>

#include "src/compare/instances.h"
#include "ttrace/status.h"

namespace ttrace {

// The first copy of each region. Fails where what is recorded of it lies
// elsewhere: rows in another order.
Result<std::vector<const Instance*>> FirstCopies(
    const TensorPieces& pieces, const std::vector<InstanceGroup>& groups);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_FIRST_COPIES_H_
