#include "src/numeric/digest.h"

#include "src/numeric/digest_kernel.h"

namespace ttrace {

void AddDigest(const std::byte* elements, DType dtype, uint64_t logical,
               size_t count, TensorDigest* digest) {
  const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
  const DigestSums sums =
      DigestRun(elements, logical * itemsize, count, itemsize);
  digest->Merge({{sums.lane[0], sums.lane[1]},
                 sums.multiset,
                 static_cast<int64_t>(count)});
}

Status AddDigest(const PlacedTensor& tensor, TensorDigest* digest) {
  return ForEachPackedRun(
      tensor, [&](uint64_t logical, const std::byte* elements, size_t count) {
        AddDigest(elements, tensor.dtype, logical, count, digest);
      });
}

}  // namespace ttrace
