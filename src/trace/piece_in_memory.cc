#include "src/trace/piece_in_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/trace/strided_gather.h"

namespace ttrace {

namespace {

RankTrace RankOf(RankMeta meta) {
  RankTrace rank;
  rank.meta = std::move(meta);
  return rank;
}

}  // namespace

PieceInMemory::PieceInMemory(RankMeta meta)
    : OneRankTrace(RankOf(std::move(meta))),
      records_(std::make_unique<RecordTable>()) {}

void PieceInMemory::Hold(RecordFields fields, const StridedView& values) {
  fields.number = -1;
  SetSameAs(std::nullopt, &fields.payload);
  records_ = std::make_unique<RecordTable>();
  records_->Append(fields);
  const int itemsize = Info(fields.dtype).itemsize;
  const auto bytes =
      static_cast<size_t>(fields.layout.local_count() * itemsize);
  const std::vector<int64_t> packed = RowMajorStrides(fields.local_shape);
  if (std::equal(packed.begin(), packed.end(), values.strides.begin(),
                 values.strides.end())) {
    values_ = {values.data, bytes};
    return;
  }
  copy_.clear();
  copy_.reserve(bytes);
  StridedGather gather(values.data, fields.local_shape, values.strides,
                       itemsize);
  for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
    copy_.insert(copy_.end(), tile.begin(), tile.end());
  }
  values_ = copy_;
}

Status ReadFromMemory(std::span<const std::byte> values, const Record& record,
                      int64_t offset, std::span<std::byte> out) {
  if (offset < 0 || offset > static_cast<int64_t>(values.size()) ||
      out.size() > values.size() - static_cast<size_t>(offset)) {
    return Error(ErrorCode::kInvalidArgument,
                 ToString(record.id()) + ": outside the tensor");
  }
  if (!out.empty()) {
    std::memcpy(out.data(), values.data() + offset, out.size());
  }
  return Done{};
}

}  // namespace ttrace
