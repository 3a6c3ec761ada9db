#include "src/trace/writing/writing_queue.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "src/base/await.h"
#include "src/trace/device/cuda_copier.h"
#include "src/trace/device/span_copy.h"
#include "src/trace/strided_gather.h"

namespace ttrace {
namespace {

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

}  // namespace

WritingQueue::WritingQueue(TraceWriter* writer, size_t staging_bytes,
                           Clock::duration patience)
    : patience_(patience),
      writer_(*writer),
      arrivals_(patience),
      carrier_(*writer, arrivals_),
      ring_(std::make_unique<StagingRing>(staging_bytes)) {
  const AllSignalsBlocked blocked;
  thread_ = std::thread([this] { Run(); });
}

WritingQueue::~WritingQueue() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  work_.notify_one();
  thread_.join();
  EndDevices();
}

Status WritingQueue::OpenDevice(const Device& device,
                                const std::string& driver) {
  if (copiers_.contains(device)) return Done{};
  ring_->KeepFromChildren();
  TTRACE_ASSIGN_OR_RETURN(
      copiers_[device], OpenCudaCopier(driver, device.index, ring_->memory()));
  return Done{};
}

Result<bool> WritingQueue::AppendFrom(const DeviceStream& at,
                                      const RecordSpec& spec,
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

Status WritingQueue::Append(const RecordSpec& spec,
                            const Occurrence& occurrence,
                            const StridedView& view) {
  const std::optional<size_t> bytes = BytesOf(spec, view);
  if (!holds_ && bytes && *bytes >= kLeastSummarized &&
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

void WritingQueue::Add(Call call) {
  if (std::holds_alternative<HoldCall>(call)) holds_ = true;
  if (EndsHolding(call)) holds_ = false;
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

void WritingQueue::Do(size_t count, const std::function<void(size_t)>& part) {
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
    Await(done_, lock, [this] { return !helps_; });
  }
  parts.Rethrow();
}

// Until all calls are carried out.
void WritingQueue::Wait() {
  std::list<Call> done;
  std::unique_lock lock(mutex_);
  WaitUntilIdle(lock);
  done.swap(carried_out_);
}

void WritingQueue::TakeWriter() {
  std::list<Call> done;
  std::unique_lock lock(mutex_);
  WaitUntilIdle(lock);
  collects_ = false;
  done.swap(carried_out_);
}

Status WritingQueue::TakeError() {
  const std::lock_guard lock(mutex_);
  if (!error_) return Done{};
  Error error = *std::move(error_);
  error_.reset();
  return error;
}

// False: values of it are wanted, or the writer says what is wrong with it.
bool WritingQueue::AppendSummaryOf(const RecordSpec& spec,
                                   const Occurrence& occurrence,
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

Status WritingQueue::AppendStaged(DeviceCopier& from, uintptr_t stream,
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
Error WritingQueue::Lost(const Error& error, bool staged) {
  Add(LostCall{staged});
  return error;
}

// In memory of its own, for as long as it takes to write it.
Status WritingQueue::AppendAtOnce(DeviceCopier& from, uintptr_t stream,
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

Status WritingQueue::CopyAndAwait(DeviceCopier& from, uintptr_t stream,
                                  const std::byte* data, const SpanCopy& rows,
                                  std::byte* to) {
  TTRACE_ASSIGN_OR_RETURN(const DeviceCopier::Arrival arrival,
                          from.CopyAtOnce(data, rows, stream, to));
  return arrivals_.Await(from, arrival);
}

void WritingQueue::WaitUntilIdle(std::unique_lock<std::mutex>& lock) {
  work_.notify_one();  // It may nap.
  Await(done_, lock, [this] { return calls_.empty() && !flushes_; });
}

void WritingQueue::WaitUntilFewAreOnTheirWay() {
  std::unique_lock lock(mutex_);
  if (on_their_way_ < kMostOnTheirWay) return;
  work_.notify_one();  // It may nap.
  Await(done_, lock, [this] { return on_their_way_ < kMostOnTheirWay; });
}

std::byte* WritingQueue::Take(size_t bytes) {
  std::unique_lock lock(mutex_);
  std::byte* stretch = ring_->Take(bytes);
  if (stretch != nullptr) return stretch;
  work_.notify_one();  // It may nap.
  Await(done_, lock, [&] { return (stretch = ring_->Take(bytes)) != nullptr; });
  return stretch;
}

// What a device that hangs may still write to is kept.
void WritingQueue::EndDevices() {
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

void WritingQueue::Run() {
  std::unique_lock lock(mutex_);
  const auto is_asked = [this] {
    return offered_ != nullptr && !offered_->all_taken();
  };
  const auto has_work = [&] { return ends_ || !calls_.empty() || is_asked(); };
  // Also where the writer was taken while nothing came: it is the taker's.
  const auto has_nothing_to_flush = [&] { return has_work() || !collects_; };
  while (true) {
    if (!has_work()) {
      naps_ = true;
      work_.wait_for(lock, kNap, has_work);
      naps_ = false;
      if (!work_.wait_for(lock, kQuiet, has_nothing_to_flush)) Flush(lock);
      Await(work_, lock, has_work);
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
void WritingQueue::Flush(std::unique_lock<std::mutex>& lock) {
  collects_ = false;
  flushes_ = true;
  lock.unlock();
  const Status status = carrier_.Flush();
  lock.lock();
  flushes_ = false;
  Keep(status);
  done_.notify_one();
}

void WritingQueue::Keep(const Status& status) {
  if (!status.ok() && !error_) error_ = status.error();
}

}  // namespace ttrace
