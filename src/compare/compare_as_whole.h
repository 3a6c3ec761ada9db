// Two tensors of which summaries were kept, compared in one: digests and
// sketches say nothing of the parts of a piece, and add up over pieces.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_COMPARE_COMPARE_AS_WHOLE_H_
#define TTRACE_SRC_COMPARE_COMPARE_AS_WHOLE_H_

#include <vector>

#include "src/align/catalog.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/instances.h"
#include "ttrace/status.h"

namespace ttrace {

// All of a tensor of this shape, as one part.
Layout WholeLayout(const Shape& shape);

// Into `out`: one region, with all ranks in one instance, or in two where
// digests tell which ranks hold other bits. No copy hides behind the first of
// its place: one whose digest is another makes the tensor another one, by how
// much nobody can say. Fails as CompareTensor.
Status CompareAsWhole(const TensorPieces& reference,
                      const std::vector<InstanceGroup>& refs,
                      const TensorPieces& candidate,
                      const std::vector<InstanceGroup>& cands,
                      TensorComparison* out);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARE_AS_WHOLE_H_
