#include "src/trace/own_trace.h"

#include <utility>

namespace ttrace {

Record OwnTrace::Add(const RecordFields& written) {
  return AddPlace({written, 0, 0}, false);
}

Record OwnTrace::Add(const DeferredRecords::Held& held) {
  return AddPlace(held, !held.record.same_as());
}

Record OwnTrace::AddPlace(DeferredRecords::Held held, bool aside) {
  RecordFields& record = held.record;
  record.sequence = static_cast<int64_t>(places_.size());
  record.number = -1;
  SetSameAs(std::nullopt, &record.payload);
  const Record added = records_.Append(record);
  places_.push_back({std::move(held), aside});
  return added;
}

Status OwnTrace::Read(const Record& record, int64_t offset,
                      std::span<std::byte> out) const {
  const Place& place = places_[static_cast<size_t>(record.number())];
  if (place.aside) return aside_.Read(place.held, offset, out);
  const int64_t bytes = place.held.record.extent.bytes;
  if (offset < 0 || offset > bytes ||
      static_cast<int64_t>(out.size()) > bytes - offset) {
    return Error(ErrorCode::kInvalidArgument,
                 ToString(record.id()) + ": outside the tensor");
  }
  return written_.Read(place.held.record, offset, out);
}

}  // namespace ttrace
