#include "src/measure/repeated_bytes.h"

#include <algorithm>

#include "src/compare/instances.h"

namespace ttrace {
namespace {

bool AreOfOneShape(const Layout& a, const Layout& b) {
  return std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), b.dims.end(),
                    [](const DimLayout& x, const DimLayout& y) {
                      return x.global_size == y.global_size;
                    });
}

bool IsRepeatedBy(const Record& piece, const Record& replay) {
  if (piece.rank() != replay.rank() ||
      piece.micro_batch() != replay.micro_batch() ||
      piece.dtype() != replay.dtype() || !piece.holds_values() ||
      !replay.holds_values() ||
      piece.scale().value() != replay.scale().value() || IsTerm(piece) ||
      IsTerm(replay)) {
    return false;
  }
  const Extent extent = piece.extent();
  const Extent other = replay.extent();
  // Pieces of one place mostly have one layout, not only equal ones.
  return extent.xxh3 == other.xxh3 && extent.bytes == other.bytes &&
         (&piece.layout() == &replay.layout() ||
          piece.layout() == replay.layout());
}

bool AreVerified(const TensorPieces& of) {
  return std::all_of(
      of.pieces.begin(), of.pieces.end(),
      [&](const Record& piece) { return of.trace->Verify(piece).ok(); });
}

}  // namespace

bool IsSameBytes(const TensorPieces& real, const TensorPieces& replay) {
  return real.trace == replay.trace &&
         real.pieces.size() == replay.pieces.size() &&
         std::equal(real.pieces.begin(), real.pieces.end(),
                    replay.pieces.begin(),
                    [](const Record& a, const Record& b) {
                      return a.extent() == b.extent() && a.rank() == b.rank();
                    });
}

bool HasEqualBytes(const TensorPieces& real, const TensorPieces& replay) {
  if (real.unplaced || replay.unplaced ||
      real.pieces.size() != replay.pieces.size()) {
    return false;
  }
  const Record first = real.pieces.front();
  return std::equal(real.pieces.begin(), real.pieces.end(),
                    replay.pieces.begin(),
                    [&](const Record& a, const Record& b) {
                      return AreOfOneShape(a.layout(), first.layout()) &&
                             IsRepeatedBy(a, b);
                    }) &&
         AreVerified(real) && AreVerified(replay);
}

}  // namespace ttrace
