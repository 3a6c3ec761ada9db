#include "src/compare/held_values.h"

#include <algorithm>
#include <utility>

#include "src/compare/instances.h"
#include "src/numeric/widen.h"

namespace ttrace {
namespace {

constexpr int64_t kTile = 1 << 16;

void CutInto(const Layout& layout, size_t dim, int64_t most,
             std::vector<Layout>* out) {
  const int64_t count = layout.local_count();
  if (count <= most || dim == layout.dims.size()) {
    if (count > 0) out->push_back(layout);
    return;
  }
  const int64_t size = layout.dims[dim].local_size();
  const int64_t inner = count / size;
  const int64_t step = std::max<int64_t>(1, most / inner);
  for (const Segment& segment : layout.dims[dim].segments) {
    for (int64_t i = 0; i < segment.size; i += step) {
      Layout part = layout;
      part.dims[dim].segments = {
          {segment.begin + i, std::min(step, segment.size - i)}};
      CutInto(part, dim + 1, most, out);
    }
  }
}

}  // namespace

Status HeldReader::ReadTile(const Trace& trace, const Record& record,
                            const Tile& tile, bool first, HeldValues* out) {
  const LocalBlock block = BlockInB(tile);
  Instance instance;
  instance.trace = &trace;
  instance.terms = {{record, 1.0}};
  TTRACE_ASSIGN_OR_RETURN(const BlockView view, reader_.Read(instance, block));
  const int64_t itemsize = Info(view.dtype).itemsize;
  const auto cols = static_cast<size_t>(block.sizes.back());
  row_.resize(cols);
  ForEachRow(block.sizes, view.strides, BlockInA(tile).strides,
             [&](int64_t from, int64_t to) {
               const std::byte* data = view.data + from * itemsize;
               const auto begin = static_cast<size_t>(tile.a_begin + to);
               if (first) {  // a piece has no element twice
                 Widen(view.dtype, data, cols, &out->values[begin]);
                 std::fill_n(&out->held[begin], cols, char{1});
                 out->missing -= block.sizes.back();
                 return;
               }
               Widen(view.dtype, data, cols, row_.data());
               for (size_t i = 0; i < cols; ++i) {
                 if (out->held[begin + i] != 0) continue;  // an earlier rank's
                 out->held[begin + i] = 1;
                 out->values[begin + i] = row_[i];
                 --out->missing;
               }
             });
  return Done{};
}

Status HeldReader::Read(const TensorPieces& pieces, int rank,
                        const Layout& want, HeldValues* out) {
  const int64_t count = want.local_count();
  out->missing = count;
  out->values.assign(static_cast<size_t>(count), 0.0);
  out->held.assign(static_cast<size_t>(count), 0);
  for (const Record& record : pieces.pieces) {
    if (out->missing == 0) break;
    if ((rank != kAnyRank && record.rank() != rank) || IsTerm(record) ||
        record.layout().global_shape() != want.global_shape()) {
      continue;
    }
    const bool first = out->missing == count;  // nothing is held yet
    TTRACE_RETURN_IF_ERROR(ForEachTile(
        want, record.layout(), kTile, [&](const Tile& tile) -> Status {
          return ReadTile(*pieces.trace, record, tile, first, out);
        }));
  }
  return Done{};
}

Result<HeldValues> ReadHeld(const TensorPieces& pieces, int rank,
                            const Layout& want) {
  HeldValues out;
  TTRACE_RETURN_IF_ERROR(HeldReader().Read(pieces, rank, want, &out));
  return out;
}

std::vector<Layout> CutLayout(const Layout& layout, int64_t most) {
  std::vector<Layout> out;
  CutInto(layout, 0, std::max<int64_t>(1, most), &out);
  return out;
}

}  // namespace ttrace
