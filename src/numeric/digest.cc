#include "src/numeric/digest.h"

#include "src/numeric/digest_kernel.h"

namespace ttrace {

Status AddDigest(const PlacedTensor& tensor, TensorDigest* digest) {
  const auto itemsize = static_cast<size_t>(Info(tensor.dtype).itemsize);
  return ForEachPackedRun(
      tensor, [&](uint64_t logical, const std::byte* elements, size_t count) {
        const DigestSums sums =
            DigestRun(elements, logical * itemsize, count, itemsize);
        digest->Merge({{sums.lane[0], sums.lane[1]},
                       sums.multiset,
                       static_cast<int64_t>(count)});
      });
}

}  // namespace ttrace
