#include "src/trace/writing/writer_thread.h"

#include <sys/types.h>
#include <unistd.h>

#include <span>
#include <string>
#include <utility>

#include "src/trace/writing/writing_queue.h"

namespace ttrace {
namespace {

class WriterThread final : public Sink {
 public:
  WriterThread(std::unique_ptr<TraceWriter> writer, size_t staging_bytes,
               WritingQueue::Clock::duration patience)
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
    return Add(NoteCall{kind, json_object});
  }

  Status Hold() override {
    if (!Mine()) return NotMine();
    return Add(HoldCall{});
  }
  Status Amend(const RecordSpec& spec, const Occurrence& occurrence) override {
    if (!Mine()) return NotMine();
    return Add(AmendCall{spec, occurrence});
  }
  Status Release(std::span<const int64_t> micro_batches) override {
    if (!Mine()) return NotMine();
    return Add(ReleaseCall{{micro_batches.begin(), micro_batches.end()}});
  }
  Status Drop() override {
    if (!Mine()) return NotMine();
    return Add(DropCall{});
  }

  Status Flush() override {
    TTRACE_RETURN_IF_ERROR(Drain());
    return writer_->Flush();
  }

  Status Seal(int iteration, const Leg& leg) override {
    if (!Mine()) return writer_->Seal(iteration, leg);
    return Add(SealCall{iteration, leg});
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

  Status Add(Call call) {
    Thread().Add(std::move(call));
    return Thread().TakeError();
  }

  // Until everything is carried out; what it failed with.
  Status Drain() {
    if (!behind_ || !Mine()) return Done{};
    behind_->TakeWriter();
    return behind_->TakeError();
  }

  WritingQueue& Thread() {
    if (!behind_) {
      behind_ = std::make_unique<WritingQueue>(writer_.get(), staging_bytes_,
                                               patience_);
    }
    return *behind_;
  }

  const pid_t owner_ = ::getpid();
  std::unique_ptr<TraceWriter> writer_;
  const size_t staging_bytes_;
  const WritingQueue::Clock::duration patience_;
  std::unique_ptr<WritingQueue> behind_;  // ends before the writer does
};

}  // namespace

std::unique_ptr<Sink> WriteOnThread(std::unique_ptr<TraceWriter> writer,
                                    size_t staging_bytes,
                                    std::chrono::milliseconds patience) {
  return std::make_unique<WriterThread>(std::move(writer), staging_bytes,
                                        patience);
}

}  // namespace ttrace
