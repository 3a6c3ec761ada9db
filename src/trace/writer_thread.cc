#include "src/trace/writer_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "src/trace/arrivals.h"
#include "src/trace/cuda_copier.h"
#include "src/trace/offered_parts.h"
#include "src/trace/span_copy.h"
#include "src/trace/staging_ring.h"
#include "src/trace/strided_gather.h"

namespace ttrace {
namespace {

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
  std::string leg;
};
using Call =
    std::variant<AppendCall, SummaryCall, LostCall, NoteCall, SealCall>;

using Clock = Arrivals::Clock;

// More comes within microseconds while a forward or a backward runs: to be
// woken for each small tensor would cost the caller more than to copy it.
constexpr std::chrono::milliseconds kNap(1);

// Where nothing has come for this long, a rank may hang: what is known of it is
// written, so that who looks at the index sees how far it came.
constexpr std::chrono::milliseconds kQuiet(10);

// A smaller tensor is copied: one thread alone makes a digest of 2-byte
// elements at 0.55 to 0.7 of the speed of a copy to the ring (4-byte ones: 0.85
// to 1.1), and nothing smaller has parts for two (compare/tensor_summary.cc).
constexpr size_t kLeastSummarized = size_t{4} << 20;

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

  TraceWriter& writer_;
  bool unsealable_ = false;  // a call since the last seal failed
  Arrivals& arrivals_;
};

bool HasStretch(const Call& call) {
  if (const auto* append = std::get_if<AppendCall>(&call)) {
    return append->staged;
  }
  if (std::holds_alternative<SummaryCall>(call)) return true;
  const auto* lost = std::get_if<LostCall>(&call);
  return lost != nullptr && lost->staged;
}

bool IsOnItsWay(const Call& call) {
  const auto* append = std::get_if<AppendCall>(&call);
  return append != nullptr && append->from != nullptr;
}

// How many bytes the tensor has; nothing where that, or what it takes to read
// them, contradicts itself: the writer says how.
std::optional<size_t> BytesOf(const RecordSpec& spec, const StridedView& view) {
  if (view.strides.size() != spec.local_shape.size()) return std::nullopt;
  const int itemsize = Info(spec.dtype).itemsize;
  if (itemsize == 0) return std::nullopt;
  auto bytes = static_cast<size_t>(itemsize);
  for (const int64_t size : spec.local_shape) {
    if (size < 0 ||
        __builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  if (view.data == nullptr && bytes > 0) return std::nullopt;
  return bytes;
}

void CopyTo(const RecordSpec& spec, const StridedView& view, std::byte* out) {
  StridedGather gather(view.data, spec.local_shape, view.strides,
                       Info(spec.dtype).itemsize);
  for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
    std::memcpy(out, tile.data(), tile.size());
    out += tile.size();
  }
}

// Signals of the process are for its own threads, whose handlers expect them.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// What a device may still write to. Found by whoever looks for leaks.
template <typename Owner>
void KeepForEver(Owner owner) {
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::vector<Owner>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(owner));
}

// The queue between the caller and the thread, and the thread.
class Behind {
 public:
  Behind(TraceWriter* writer, size_t staging_bytes, Clock::duration patience)
      : patience_(patience),
        writer_(*writer),
        arrivals_(patience),
        carrier_(*writer, arrivals_),
        ring_(std::make_unique<StagingRing>(staging_bytes)) {
    const AllSignalsBlocked blocked;
    thread_ = std::thread([this] { Run(); });
  }
  Behind(const Behind&) = delete;
  Behind& operator=(const Behind&) = delete;
  ~Behind() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    work_.notify_one();
    thread_.join();
    EndDevices();
  }

  void End() { arrivals_.End(); }

  Status OpenDevice(const Device& device, const std::string& driver) {
    if (copiers_.contains(device)) return Done{};
    ring_->KeepFromChildren();
    TTRACE_ASSIGN_OR_RETURN(
        copiers_[device],
        OpenCudaCopier(driver, device.index, ring_->memory()));
    return Done{};
  }

  Result<bool> AppendFrom(const DeviceStream& at, const RecordSpec& spec,
                          const Occurrence& occurrence,
                          const StridedView& view) {
    const auto copier = copiers_.find(at.device);
    if (copier == copiers_.end()) {
      return Error(ErrorCode::kInvalidArgument, "the device was not opened");
    }
    const std::optional<size_t> bytes = BytesOf(spec, view);
    if (!bytes || *bytes == 0) {
      // There is nothing to copy, or the writer says why not.
      TTRACE_RETURN_IF_ERROR(Append(spec, occurrence, {nullptr, view.strides}));
      return true;
    }
    DeviceCopier& from = *copier->second;
    const Result<bool> captured = from.IsCapturing(at.stream);
    if (!captured.ok()) return Lost(captured.error());
    if (*captured) return false;
    const std::optional<SpanCopy> rows =
        PlanSpanCopy(spec.local_shape, view.strides, Info(spec.dtype).itemsize);
    if (!rows) {
      return Lost(Error(ErrorCode::kInvalidArgument,
                        spec.fqn + ": its strides leave memory"));
    }
    AppendCall call{spec, occurrence, nullptr, rows->strides};
    const bool staged = rows->bytes() <= ring_->capacity() / 2;
    TTRACE_RETURN_IF_ERROR(
        staged ? AppendStaged(from, at.stream, view.data, *rows, call)
               : AppendAtOnce(from, at.stream, view.data, *rows, call));
    TTRACE_RETURN_IF_ERROR(TakeError());
    return true;
  }

  Status Append(const RecordSpec& spec, const Occurrence& occurrence,
                const StridedView& view) {
    const std::optional<size_t> bytes = BytesOf(spec, view);
    if (bytes && *bytes >= kLeastSummarized &&
        AppendSummaryOf(spec, occurrence, view)) {
      return TakeError();
    }
    const bool staged = bytes && *bytes <= ring_->capacity() / 2;
    AppendCall call{spec,
                    occurrence,
                    view.data,
                    {view.strides.begin(), view.strides.end()},
                    staged};
    if (staged) {
      std::byte* copy = Take(*bytes);
      CopyTo(spec, view, copy);
      call.data = copy;
      call.strides = RowMajorStrides(spec.local_shape);
    }
    Add(std::move(call));
    if (!staged) Wait();
    return TakeError();
  }

  void Add(Call call) {
    std::list<Call> added;
    added.push_back(std::move(call));
    std::list<Call> done;
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      if (IsOnItsWay(added.front())) ++on_their_way_;
      calls_.splice(calls_.end(), added);
      done.swap(carried_out_);
      wake = !naps_;
    }
    if (wake) work_.notify_one();
  }

  // Parts of the caller's own work. The thread takes some up where it is
  // between two calls.
  void Do(size_t count, const std::function<void(size_t)>& part) {
    if (count < 2) return DoInTurn(count, part);  // nobody is woken for it
    OfferedParts parts(count, part);
    {
      const std::lock_guard lock(mutex_);
      offered_ = &parts;
    }
    work_.notify_one();
    parts.Work();
    {
      std::unique_lock lock(mutex_);
      offered_ = nullptr;
      done_.wait(lock, [this] { return !helps_; });
    }
    parts.Rethrow();
  }

  // Until all calls are carried out.
  void Wait() {
    std::list<Call> done;
    std::unique_lock lock(mutex_);
    WaitUntilIdle(lock);
    done.swap(carried_out_);
  }

  // As Wait; until the next call the writer is the caller's.
  void TakeWriter() {
    std::list<Call> done;
    std::unique_lock lock(mutex_);
    WaitUntilIdle(lock);
    collects_ = false;
    done.swap(carried_out_);
  }

  // What a call failed with, once.
  Status TakeError() {
    const std::lock_guard lock(mutex_);
    if (!error_) return Done{};
    Error error = *std::move(error_);
    error_.reset();
    return error;
  }

 private:
  // False: values of it are wanted, or the writer says what is wrong with it.
  bool AppendSummaryOf(const RecordSpec& spec, const Occurrence& occurrence,
                       const StridedView& view) {
    const auto summary = writer_.SummaryOf(
        spec, occurrence, view,
        [this](size_t count, const auto& part) { Do(count, part); });
    if (!summary || summary->bytes.size() > ring_->capacity()) return false;
    const std::span stretch(Take(summary->bytes.size()), summary->bytes.size());
    std::copy(summary->bytes.begin(), summary->bytes.end(), stretch.begin());
    Add(SummaryCall{spec, occurrence, summary->kind, stretch});
    return true;
  }

  Status AppendStaged(DeviceCopier& from, uintptr_t stream,
                      const std::byte* data, const SpanCopy& rows,
                      AppendCall& call) {
    WaitUntilFewAreOnTheirWay();
    std::byte* stretch = Take(rows.bytes());
    Result<DeviceCopier::Arrival> arrival =
        from.Copy(data, rows, stream, stretch);
    if (!arrival.ok()) {
      return Lost(arrival.error(), true);
    }
    call.data = stretch + rows.origin;
    call.staged = true;
    call.from = &from;
    call.arrival = *arrival;
    Add(std::move(call));
    return Done{};
  }

  // The error is the call's own answer.
  Error Lost(const Error& error, bool staged = false) {
    Add(LostCall{staged});
    return error;
  }

  // In memory of its own, for as long as it takes to write it.
  Status AppendAtOnce(DeviceCopier& from, uintptr_t stream,
                      const std::byte* data, const SpanCopy& rows,
                      AppendCall& call) {
    auto memory = std::make_unique_for_overwrite<std::byte[]>(rows.bytes());
    const Status arrived = CopyAndAwait(from, stream, data, rows, memory.get());
    if (!arrived.ok()) {
      // The device may still write there.
      KeepForEver(std::move(memory));
      return Lost(arrived.error());
    }
    call.data = memory.get() + rows.origin;
    Add(std::move(call));
    Wait();
    return Done{};
  }

  Status CopyAndAwait(DeviceCopier& from, uintptr_t stream,
                      const std::byte* data, const SpanCopy& rows,
                      std::byte* to) {
    TTRACE_ASSIGN_OR_RETURN(const DeviceCopier::Arrival arrival,
                            from.CopyAtOnce(data, rows, stream, to));
    return arrivals_.Await(from, arrival);
  }

  void WaitUntilIdle(std::unique_lock<std::mutex>& lock) {
    work_.notify_one();  // It may nap.
    done_.wait(lock, [this] { return calls_.empty() && !flushes_; });
  }

  void WaitUntilFewAreOnTheirWay() {
    std::unique_lock lock(mutex_);
    if (on_their_way_ < kMostOnTheirWay) return;
    work_.notify_one();  // It may nap.
    done_.wait(lock, [this] { return on_their_way_ < kMostOnTheirWay; });
  }

  std::byte* Take(size_t bytes) {
    std::unique_lock lock(mutex_);
    std::byte* stretch = ring_->Take(bytes);
    if (stretch != nullptr) return stretch;
    work_.notify_one();  // It may nap.
    done_.wait(lock, [&] { return (stretch = ring_->Take(bytes)) != nullptr; });
    return stretch;
  }

  // What a device that hangs may still write to is kept.
  void EndDevices() {
    bool idle = !arrivals_.gave_up();
    for (const auto& [device, copier] : copiers_) {
      idle = idle && copier->IsIdleBy(Clock::now() + patience_);
    }
    if (idle) return;
    for (auto& [device, copier] : copiers_) {
      KeepForEver(std::move(copier));
    }
    KeepForEver(std::move(ring_));
  }

  void Run() {
    std::unique_lock lock(mutex_);
    const auto is_asked = [this] {
      return offered_ != nullptr && !offered_->all_taken();
    };
    const auto has_work = [&] {
      return ends_ || !calls_.empty() || is_asked();
    };
    while (true) {
      if (!has_work()) {
        naps_ = true;
        work_.wait_for(lock, kNap, has_work);
        naps_ = false;
        if (collects_ && !work_.wait_for(lock, kQuiet, has_work)) Flush(lock);
        work_.wait(lock, has_work);
      }
      if (is_asked()) {
        OfferedParts& parts = *offered_;
        helps_ = true;
        lock.unlock();
        parts.Work();
        lock.lock();
        helps_ = false;
        done_.notify_one();
        continue;
      }
      if (calls_.empty()) return;
      // It stays in the queue, where it counts as not done.
      const Call& call = calls_.front();
      lock.unlock();
      const Status status = carrier_.Carry(call);
      lock.lock();
      Keep(status);
      if (status.ok()) collects_ = true;
      if (HasStretch(call)) ring_->GiveBackOldest();
      if (IsOnItsWay(call)) --on_their_way_;
      carried_out_.splice(carried_out_.end(), calls_, calls_.begin());
      done_.notify_one();
    }
  }

  // Has the writer write what it collects.
  void Flush(std::unique_lock<std::mutex>& lock) {
    collects_ = false;
    flushes_ = true;
    lock.unlock();
    const Status status = carrier_.Flush();
    lock.lock();
    flushes_ = false;
    Keep(status);
    done_.notify_one();
  }

  void Keep(const Status& status) {
    if (!status.ok() && !error_) error_ = status.error();
  }

  const Clock::duration patience_;
  const TraceWriter& writer_;  // for the caller: what any thread may ask
  Arrivals arrivals_;
  Carrier carrier_;  // the thread's, while there are calls
  std::mutex mutex_;
  std::condition_variable work_;  // a call, or the end
  std::condition_variable done_;  // a call is done: there is room in the ring
  std::unique_ptr<StagingRing> ring_;
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

class WriterThread final : public Sink {
 public:
  WriterThread(std::unique_ptr<TraceWriter> writer, size_t staging_bytes,
               Clock::duration patience)
      : writer_(std::move(writer)),
        staging_bytes_(staging_bytes),
        patience_(patience) {}

  ~WriterThread() override {
    // A forked child has a copy of the queue, locked perhaps, and no thread.
    if (!Mine()) static_cast<void>(behind_.release());
    if (behind_) behind_->End();
  }

  Status OpenDevice(const Device& device, const std::string& driver) override {
    if (!Mine()) return NotMine();
    return Thread().OpenDevice(device, driver);
  }

  Result<bool> AppendFrom(const DeviceStream& at, const RecordSpec& spec,
                          const Occurrence& occurrence,
                          const StridedView& view) override {
    if (!Mine()) return NotMine();
    return Thread().AppendFrom(at, spec, occurrence, view);
  }

  Status Append(const RecordSpec& spec, const Occurrence& occurrence,
                const StridedView& view) override {
    if (!Mine()) return writer_->Append(spec, occurrence, view);
    return Thread().Append(spec, occurrence, view);
  }

  Status AppendSummary(const RecordSpec& spec, const Occurrence& occurrence,
                       Summary kind,
                       std::span<const std::byte> bytes) override {
    TTRACE_RETURN_IF_ERROR(Drain());
    return writer_->AppendSummary(spec, occurrence, kind, bytes);
  }

  void Do(size_t count, const std::function<void(size_t)>& part) override {
    if (!Mine()) return DoInTurn(count, part);
    Thread().Do(count, part);
  }

  Status Restate(RecordFields* record,
                 std::span<const std::byte> bytes) override {
    TTRACE_RETURN_IF_ERROR(Drain());
    return writer_->Restate(record, bytes);
  }

  Status Note(const std::string& kind,
              const std::string& json_object) override {
    if (!Mine()) return writer_->Note(kind, json_object);
    Thread().Add(NoteCall{kind, json_object});
    return Thread().TakeError();
  }

  Status Flush() override {
    TTRACE_RETURN_IF_ERROR(Drain());
    return writer_->Flush();
  }

  Status Seal(int iteration, const std::string& leg) override {
    if (!Mine()) return writer_->Seal(iteration, leg);
    Thread().Add(SealCall{iteration, leg});
    return Thread().TakeError();
  }

  Status Close(bool complete, const std::string& reason) override {
    if (!complete && behind_ && Mine()) behind_->End();
    Status before = Drain();
    if (before.ok()) return writer_->Close(complete, reason);
    // A writer that failed for good has said so in the index by itself.
    static_cast<void>(writer_->Close(false, before.error().message()));
    return before;
  }

 private:
  bool Mine() const { return ::getpid() == owner_; }

  static Error NotMine() {
    return {ErrorCode::kInvalidArgument, "this trace is another process's"};
  }

  // Until everything is carried out; what it failed with.
  Status Drain() {
    if (!behind_ || !Mine()) return Done{};
    behind_->TakeWriter();
    return behind_->TakeError();
  }

  Behind& Thread() {
    if (!behind_) {
      behind_ =
          std::make_unique<Behind>(writer_.get(), staging_bytes_, patience_);
    }
    return *behind_;
  }

  const pid_t owner_ = ::getpid();
  std::unique_ptr<TraceWriter> writer_;
  const size_t staging_bytes_;
  const Clock::duration patience_;
  std::unique_ptr<Behind> behind_;  // ends before the writer does
};

}  // namespace

std::unique_ptr<Sink> WriteOnThread(std::unique_ptr<TraceWriter> writer,
                                    size_t staging_bytes,
                                    std::chrono::milliseconds patience) {
  return std::make_unique<WriterThread>(std::move(writer), staging_bytes,
                                        patience);
}

}  // namespace ttrace
