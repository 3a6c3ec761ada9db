#include "src/compare/first_copies.h"

namespace ttrace {

Result<std::vector<const Instance*>> FirstCopies(
    const TensorPieces& pieces, const std::vector<InstanceGroup>& groups) {
  std::vector<const Instance*> out;
  for (const InstanceGroup& group : groups) {
    const Instance& first = group.instances.front();
    for (const Term& term : first.terms) {
      // As it was recorded: a reading of the batch may have moved it since.
      const auto number = static_cast<size_t>(term.record.number());
      if (pieces.trace->records()[number].layout() == group.layout) continue;
      return Error(ErrorCode::kIncomparable,
                   DescribeTensor(pieces) +
                       ": its rows are in another order, which a summary "
                       "cannot be brought into");
    }
    out.push_back(&first);
  }
  return out;
}

}  // namespace ttrace
