#include "src/trace/writer_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "src/trace/staging_ring.h"
#include "src/trace/strided_gather.h"

namespace ttrace {
namespace {

struct AppendCall {
  RecordSpec spec;
  Occurrence occurrence;
  const std::byte* data = nullptr;
  std::vector<int64_t> strides;
  bool staged = false;  // `data` is the oldest stretch of the ring
};
struct NoteCall {
  std::string kind;
  std::string json_object;
};
struct SealCall {
  int iteration = 0;
  std::string leg;
};
using Call = std::variant<AppendCall, NoteCall, SealCall>;

// More comes within microseconds while a forward or a backward runs: to be
// woken for each small tensor would cost the caller more than to copy it.
constexpr std::chrono::milliseconds kNap(1);

// The thread's side: carries calls out, in their order.
class Carrier {
 public:
  explicit Carrier(TraceWriter& writer) : writer_(writer) {}

  Status Carry(const Call& call) {
    Status status = std::visit([this](const auto& of) { return Do(of); }, call);
    if (!status.ok()) unsealable_ = true;
    return status;
  }

 private:
  Status Do(const AppendCall& call) {
    return writer_.Append(call.spec, call.occurrence,
                          {call.data, call.strides});
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
};

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

// The queue between the caller and the thread, and the thread.
class Behind {
 public:
  Behind(TraceWriter* writer, size_t staging_bytes)
      : carrier_(*writer), ring_(staging_bytes) {
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
  }

  Status Append(const RecordSpec& spec, const Occurrence& occurrence,
                const StridedView& view) {
    const std::optional<size_t> bytes = BytesOf(spec, view);
    const bool staged = bytes && *bytes <= ring_.capacity() / 2;
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
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
      wake = !naps_;
    }
    if (wake) work_.notify_one();
  }

  // Until all calls are carried out.
  void Wait() {
    std::unique_lock lock(mutex_);
    work_.notify_one();  // It may nap.
    done_.wait(lock, [this] { return calls_.empty(); });
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
  std::byte* Take(size_t bytes) {
    std::unique_lock lock(mutex_);
    std::byte* stretch = ring_.Take(bytes);
    if (stretch != nullptr) return stretch;
    work_.notify_one();  // It may nap.
    done_.wait(lock, [&] { return (stretch = ring_.Take(bytes)) != nullptr; });
    return stretch;
  }

  void Run() {
    std::unique_lock lock(mutex_);
    const auto has_work = [this] { return ends_ || !calls_.empty(); };
    while (true) {
      if (!has_work()) {
        naps_ = true;
        work_.wait_for(lock, kNap, has_work);
        naps_ = false;
        work_.wait(lock, has_work);
      }
      if (calls_.empty()) return;
      // It stays in the queue, where it counts as not done, and references to
      // the elements of a deque outlast push_back.
      const Call& call = calls_.front();
      lock.unlock();
      const Status status = carrier_.Carry(call);
      lock.lock();
      if (!status.ok() && !error_) error_ = status.error();
      const auto* append = std::get_if<AppendCall>(&call);
      if (append != nullptr && append->staged) ring_.GiveBackOldest();
      calls_.pop_front();
      done_.notify_one();
    }
  }

  Carrier carrier_;  // the thread's, while there are calls
  std::mutex mutex_;
  std::condition_variable work_;  // a call, or the end
  std::condition_variable done_;  // a call is done: there is room in the ring
  StagingRing ring_;
  std::deque<Call> calls_;  // the oldest first, which the thread may be at
  std::optional<Error> error_;
  bool ends_ = false;
  bool naps_ = false;  // the thread looks by itself before long
  std::thread thread_;
};

class WriterThread final : public TraceWriter {
 public:
  WriterThread(std::unique_ptr<TraceWriter> writer, size_t staging_bytes)
      : writer_(std::move(writer)), staging_bytes_(staging_bytes) {}

  ~WriterThread() override {
    // A forked child has a copy of the queue, locked perhaps, and no thread.
    if (!Mine()) static_cast<void>(behind_.release());
  }

  Status Append(const RecordSpec& spec, const Occurrence& occurrence,
                const StridedView& view) override {
    if (!Mine()) return writer_->Append(spec, occurrence, view);
    return Thread().Append(spec, occurrence, view);
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
    Status before = Drain();
    if (before.ok()) return writer_->Close(complete, reason);
    // A writer that failed for good has said so in the index by itself.
    static_cast<void>(writer_->Close(false, before.error().message()));
    return before;
  }

 private:
  bool Mine() const { return ::getpid() == owner_; }

  // Until everything is carried out; what it failed with.
  Status Drain() {
    if (!behind_ || !Mine()) return Done{};
    behind_->Wait();
    return behind_->TakeError();
  }

  Behind& Thread() {
    if (!behind_) {
      behind_ = std::make_unique<Behind>(writer_.get(), staging_bytes_);
    }
    return *behind_;
  }

  const pid_t owner_ = ::getpid();
  std::unique_ptr<TraceWriter> writer_;
  size_t staging_bytes_;
  std::unique_ptr<Behind> behind_;  // ends before the writer does
};

}  // namespace

std::unique_ptr<TraceWriter> WriteOnThread(std::unique_ptr<TraceWriter> writer,
                                           size_t staging_bytes) {
  return std::make_unique<WriterThread>(std::move(writer), staging_bytes);
}

}  // namespace ttrace
