// What a TraceWriter is to do, as it waits for the thread that has it done
// (writing_queue.h).

#ifndef TTRACE_SRC_TRACE_WRITING_QUEUED_CALL_H_
#define TTRACE_SRC_TRACE_WRITING_QUEUED_CALL_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/trace/device/device_copier.h"
#include "src/trace/writer.h"
#include "src/trace/writing/arrivals.h"
#include "ttrace/leg.h"

namespace ttrace {

struct AppendCall {
  RecordSpec spec;
  Occurrence occurrence;
  const std::byte* data = nullptr;
  std::vector<int64_t> strides;
  bool staged = false;           // `data` is in the oldest stretch of the ring
  DeviceCopier* from = nullptr;  // a device: nothing is at `data` before this
  DeviceCopier::Arrival arrival = nullptr;
};
// What is kept of a tensor that was summarised by the caller.
struct SummaryCall {
  RecordSpec spec;
  Occurrence occurrence;
  Summary kind;
  std::span<const std::byte> bytes;  // the oldest stretch of the ring
};
// A tensor that will never be there.
struct LostCall {
  bool staged = false;  // it has the oldest stretch of the ring
};
struct NoteCall {
  std::string kind;
  std::string json_object;
};
struct SealCall {
  int iteration = 0;
  Leg leg;
};
struct HoldCall {};
struct AmendCall {
  RecordSpec spec;
  Occurrence occurrence;
};
struct ReleaseCall {
  std::vector<int64_t> micro_batches;
};
struct DropCall {};
using Call = std::variant<AppendCall, SummaryCall, LostCall, NoteCall, SealCall,
                          HoldCall, AmendCall, ReleaseCall, DropCall>;

// Whether it has the oldest stretch of the ring, and whether its tensor comes
// from a device.
bool HasStretch(const Call& call);
bool IsOnItsWay(const Call& call);
bool EndsHolding(const Call& call);

// The thread's side: carries calls out, in their order.
class Carrier {
 public:
  Carrier(TraceWriter& writer, Arrivals& arrivals)
      : writer_(writer), arrivals_(arrivals) {}

  Status Carry(const Call& call) {
    Status status = std::visit([this](const auto& of) { return Do(of); }, call);
    if (!status.ok()) unsealable_ = true;
    return status;
  }

  Status Flush() { return writer_.Flush(); }

 private:
  Status Do(const AppendCall& call) {
    if (call.from != nullptr) {
      TTRACE_RETURN_IF_ERROR(arrivals_.Await(*call.from, call.arrival));
    }
    return writer_.Append(call.spec, call.occurrence,
                          {call.data, call.strides});
  }
  Status Do(const SummaryCall& call) {
    return writer_.AppendSummary(call.spec, call.occurrence, call.kind,
                                 call.bytes);
  }
  // Who made the call knows why.
  Status Do(const LostCall&) {
    unsealable_ = true;
    return Done{};
  }
  Status Do(const NoteCall& call) {
    return writer_.Note(call.kind, call.json_object);
  }
  Status Do(const SealCall& call) {
    if (std::exchange(unsealable_, false)) return Done{};
    return writer_.Seal(call.iteration, call.leg);
  }

  Status Do(const HoldCall&) { return writer_.Hold(); }
  Status Do(const AmendCall& call) {
    return writer_.Amend(call.spec, call.occurrence);
  }
  Status Do(const ReleaseCall& call) {
    return writer_.Release(call.micro_batches);
  }
  Status Do(const DropCall&) { return writer_.Drop(); }

  TraceWriter& writer_;
  bool unsealable_ = false;  // a call since the last seal failed
  Arrivals& arrivals_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITING_QUEUED_CALL_H_
