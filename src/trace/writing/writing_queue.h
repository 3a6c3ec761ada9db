// The calls to a TraceWriter that its thread has not carried out yet, the ring
// their tensors are copied to, and the thread.
//
// Thread safety: one thread at a time; the queue's own thread is nobody's else.

#ifndef TTRACE_SRC_TRACE_WRITING_WRITING_QUEUE_H_
#define TTRACE_SRC_TRACE_WRITING_WRITING_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "src/trace/device/device_copier.h"
#include "src/trace/device/staging_ring.h"
#include "src/trace/writer.h"
#include "src/trace/writing/arrivals.h"
#include "src/trace/writing/offered_parts.h"
#include "src/trace/writing/queued_call.h"

namespace ttrace {

// Tensors that a device is copying: it takes an event of the device for each.
inline constexpr int kMostOnTheirWay = 4096;

class WritingQueue {
 public:
  using Clock = Arrivals::Clock;

  // `writer` must outlive the queue. `patience`: how long a device may let an
  // end wait.
  WritingQueue(TraceWriter* writer, size_t staging_bytes,
               Clock::duration patience);
  WritingQueue(const WritingQueue&) = delete;
  WritingQueue& operator=(const WritingQueue&) = delete;
  // Carries out what is left.
  ~WritingQueue();

  // From here on a device that delivers nothing is given up.
  void End() { arrivals_.End(); }

  // As those of a Sink (sink.h); errors may be those of earlier calls.
  Status OpenDevice(const Device& device, const std::string& driver);
  Result<bool> AppendFrom(const DeviceStream& at, const RecordSpec& spec,
                          const Occurrence& occurrence,
                          const StridedView& view);
  Status Append(const RecordSpec& spec, const Occurrence& occurrence,
                const StridedView& view);

  void Add(Call call);

  // Parts of the caller's own work. The thread takes some up where it is
  // between two calls.
  void Do(size_t count, const std::function<void(size_t)>& part);

  // Returns when all calls are carried out; until the next one the writer is
  // the caller's.
  void TakeWriter();

  // What a call failed with, once.
  Status TakeError();

 private:
  bool AppendSummaryOf(const RecordSpec& spec, const Occurrence& occurrence,
                       const StridedView& view);
  Status AppendStaged(DeviceCopier& from, uintptr_t stream,
                      const std::byte* data, const SpanCopy& rows,
                      AppendCall& call);
  Status AppendAtOnce(DeviceCopier& from, uintptr_t stream,
                      const std::byte* data, const SpanCopy& rows,
                      AppendCall& call);
  Status CopyAndAwait(DeviceCopier& from, uintptr_t stream,
                      const std::byte* data, const SpanCopy& rows,
                      std::byte* to);
  Error Lost(const Error& error, bool staged = false);
  void Wait();
  void WaitUntilIdle(std::unique_lock<std::mutex>& lock);
  void WaitUntilFewAreOnTheirWay();
  std::byte* Take(size_t bytes);
  void EndDevices();

  // Of the thread.
  void Run();
  void Flush(std::unique_lock<std::mutex>& lock);
  void Keep(const Status& status);

  const Clock::duration patience_;
  const TraceWriter& writer_;  // for the caller: what any thread may ask
  Arrivals arrivals_;
  Carrier carrier_;  // the thread's, while there are calls
  std::mutex mutex_;
  std::condition_variable work_;  // a call, or the end
  std::condition_variable done_;  // a call is done: there is room in the ring
  std::unique_ptr<StagingRing> ring_;
  bool holds_ = false;  // what the caller adds, the writer will set aside
  // Of the caller's thread. Those of a call live until it is done.
  std::map<Device, std::unique_ptr<DeviceCopier>> copiers_;
  int on_their_way_ = 0;             // calls with a tensor of a device
  OfferedParts* offered_ = nullptr;  // by the caller, who waits for them
  bool helps_ = false;               // the thread is at them
  std::list<Call> calls_;  // the oldest first, which the thread may be at
  // What the caller allocated it frees. Freed by the thread, small pieces of
  // the caller's heap would become what the thread keeps, among the tensors
  // that the caller's training allocates there, and none of these would fit
  // again into the room of one before it: the heap would grow without end.
  std::list<Call> carried_out_;
  std::optional<Error> error_;
  bool collects_ = false;  // the writer may have lines that are not written
  bool flushes_ = false;   // the thread has it write them
  bool ends_ = false;
  bool naps_ = false;  // the thread looks by itself before long
  std::thread thread_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITING_WRITING_QUEUE_H_
