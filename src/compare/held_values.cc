#include "src/compare/held_values.h"

#include <algorithm>
#include <utility>

#include "src/compare/instances.h"
#include "src/compare/tile.h"
#include "src/compare/tile_reader.h"
#include "src/numeric/widen.h"

namespace ttrace {
namespace {

constexpr int64_t kTile = 1 << 16;

Status CopyTile(const Trace& trace, const Record& record, const Tile& tile,
                TileReader* reader, HeldValues* out) {
  LocalBlock block{tile.b_begin, {}, {}};
  std::vector<int64_t> out_strides;
  for (const Axis& axis : tile.axes) {
    block.sizes.push_back(axis.size);
    block.strides.push_back(axis.b_stride);
    out_strides.push_back(axis.a_stride);
  }
  Instance instance;
  instance.trace = &trace;
  instance.terms = {{&record, 1.0}};
  TTRACE_ASSIGN_OR_RETURN(const BlockView view, reader->Read(instance, block));
  const int64_t itemsize = Info(view.dtype).itemsize;
  const auto cols = static_cast<size_t>(block.sizes.back());
  std::vector<double> row(cols);
  ForEachRow(block.sizes, view.strides, out_strides,
             [&](int64_t from, int64_t to) {
               Widen(view.dtype, view.data + from * itemsize, cols, row.data());
               for (size_t i = 0; i < cols; ++i) {
                 const auto at = static_cast<size_t>(tile.a_begin + to) + i;
                 if (out->held[at] != 0) continue;  // an earlier rank's
                 out->held[at] = 1;
                 out->values[at] = row[i];
                 --out->missing;
               }
             });
  return Done{};
}

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

Result<HeldValues> ReadHeld(const TensorPieces& pieces, int rank,
                            const Layout& want) {
  HeldValues out;
  out.missing = want.local_count();
  out.values.assign(static_cast<size_t>(out.missing), 0.0);
  out.held.assign(static_cast<size_t>(out.missing), 0);
  TileReader reader;
  for (const Record* record : pieces.pieces) {
    if (out.missing == 0) break;
    if ((rank != kAnyRank && record->rank != rank) || IsTerm(*record) ||
        record->layout.global_shape() != want.global_shape()) {
      continue;
    }
    TTRACE_RETURN_IF_ERROR(ForEachTile(
        want, record->layout, kTile, [&](const Tile& tile) -> Status {
          return CopyTile(*pieces.trace, *record, tile, &reader, &out);
        }));
  }
  return out;
}

std::vector<Layout> CutLayout(const Layout& layout, int64_t most) {
  std::vector<Layout> out;
  CutInto(layout, 0, std::max<int64_t>(1, most), &out);
  return out;
}

}  // namespace ttrace
