#include "src/numeric/row_digests.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace ttrace {
namespace {

bool SameElement(const std::byte* a, const std::byte* b, size_t itemsize) {
  return std::memcmp(a, b, itemsize) == 0;
}

uint64_t DigestOf(const std::byte* begin, const std::byte* end) {
  return XXH3_64bits(begin, static_cast<size_t>(end - begin));
}

}  // namespace

RowDigests DigestRows(std::span<const std::byte> bytes, size_t rows,
                      size_t itemsize) {
  RowDigests out;
  const size_t size = bytes.size() / rows;
  const auto step = static_cast<std::ptrdiff_t>(itemsize);
  for (size_t r = 0; r < rows; ++r) {
    const std::byte* begin = bytes.data() + r * size;
    const std::byte* end = begin + size;
    out.whole.push_back(DigestOf(begin, end));
    const std::byte* cut = end;
    while (cut != begin && SameElement(cut - step, end - step, itemsize)) {
      cut -= step;
    }
    out.without_end.push_back(DigestOf(begin, cut));
    out.cut_end.push_back(DigestOf(begin, cut == begin ? cut : cut - step));
    cut = begin;
    while (cut != end && SameElement(cut, begin, itemsize)) cut += step;
    out.without_begin.push_back(DigestOf(cut, end));
    out.cut_begin.push_back(DigestOf(cut == end ? cut : cut + step, end));
  }
  return out;
}

}  // namespace ttrace
