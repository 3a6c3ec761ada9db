#include "src/trace/writing/holding_writer.h"

#include <sys/types.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/numeric/narrow.h"
#include "src/numeric/widen.h"
#include "src/trace/format.h"
#include "src/trace/strided_gather.h"
#include "src/trace/writing/held_values.h"

namespace ttrace {
namespace {

// One occurrence of a tensor.
using HeldKey = std::tuple<TensorId, Leg, int, DType, Shape>;

HeldKey KeyOf(const RecordSpec& spec, const Occurrence& occurrence) {
  return {{spec.fqn, spec.role, occurrence.iteration, occurrence.call, spec.arg,
           occurrence.pass},
          occurrence.leg,
          occurrence.micro_batch,
          spec.dtype,
          spec.local_shape};
}

bool ComesInTerms(const RecordSpec& spec) {
  return Info(spec.dtype).floating &&
         (spec.role == Role::kGradInput || spec.role == Role::kGradOutput ||
          spec.role == Role::kLoss);
}

// As torch adds two tensors of this dtype: in float where it is shorter.
void AddTerm(DType dtype, std::span<const std::byte> term,
             std::span<std::byte> sum) {
  const auto itemsize = static_cast<size_t>(Info(dtype).itemsize);
  for (size_t at = 0; at < sum.size(); at += itemsize) {
    const double a = WidenElement(dtype, &sum[at]);
    const double b = WidenElement(dtype, &term[at]);
    const double exact = dtype == DType::kF64
                             ? a + b
                             : static_cast<float>(a) + static_cast<float>(b);
    Narrow(dtype, exact, &sum[at]);
  }
}

class HoldingWriter final : public TraceWriter {
 public:
  HoldingWriter(std::unique_ptr<TraceWriter> writer, std::string folder)
      : writer_(std::move(writer)), values_(std::move(folder)) {}

  Status Append(const RecordSpec& spec, const Occurrence& occurrence,
                const StridedView& view) override {
    if (!holds_ || !Mine()) return writer_->Append(spec, occurrence, view);
    if (failure_) return *failure_;
    // What a writer refuses it refuses at once: nothing of it can be held.
    if (Info(spec.dtype).itemsize == 0 ||
        view.strides.size() != spec.local_shape.size() ||
        (view.data == nullptr && Count(spec.local_shape) > 0)) {
      return writer_->Append(spec, occurrence, view);
    }
    const Status held = Keep(spec, occurrence, view);
    if (!held.ok()) failure_ = held.error();
    return held;
  }

  std::optional<Reducer::Summarized> SummaryOf(
      const RecordSpec& spec, const Occurrence& occurrence,
      const StridedView& view, const DoParts& parts) const override {
    return writer_->SummaryOf(spec, occurrence, view, parts);
  }

  Status AppendSummary(const RecordSpec& spec, const Occurrence& occurrence,
                       Summary kind,
                       std::span<const std::byte> bytes) override {
    if (holds_) return Invalid("a summary while records are held");
    return writer_->AppendSummary(spec, occurrence, kind, bytes);
  }

  Status Restate(RecordFields* record,
                 std::span<const std::byte> bytes) override {
    if (holds_) return Invalid("a record of another trace while some are held");
    return writer_->Restate(record, bytes);
  }

  Status Hold() override {
    if (holds_) return Invalid("records are held already");
    holds_ = true;
    return Done{};
  }

  Status Amend(const RecordSpec& spec, const Occurrence& occurrence) override {
    const auto found = places_.find(KeyOf(spec, occurrence));
    if (!holds_ || found == places_.end()) {
      return Invalid(Abridged(spec.fqn) + ": no such record is held");
    }
    Held& held = records_[found->second];
    held.spec = spec;
    held.occurrence.row_begin = occurrence.row_begin;
    return Done{};
  }

  Status Release(std::span<const int64_t> micro_batches) override {
    if (!holds_) return Invalid("no records are held");
    holds_ = false;
    if (failure_) return *failure_;
    Status first = Done{};
    for (Held& held : records_) {
      Status handed = SayBatch(micro_batches, held);
      if (handed.ok()) handed = HandOn(held);
      if (first.ok() && !handed.ok()) first = handed;
    }
    Forget();
    return first;
  }

  Status Drop() override {
    holds_ = false;
    Forget();
    return Done{};
  }

  Status Note(const std::string& kind,
              const std::string& json_object) override {
    return writer_->Note(kind, json_object);
  }
  Status Flush() override { return writer_->Flush(); }
  Status Seal(int iteration, const Leg& leg) override {
    if (holds_) return Invalid("a leg ends while its records are held");
    return writer_->Seal(iteration, leg);
  }
  // What is still held belongs to an iteration that is not complete.
  Status Close(bool complete, const std::string& reason) override {
    Forget();
    holds_ = false;
    return writer_->Close(complete, reason);
  }

 private:
  struct Held {
    RecordSpec spec;
    Occurrence occurrence;
    int64_t offset = 0;
    size_t bytes = 0;
  };

  bool Mine() const { return ::getpid() == owner_; }

  static int64_t Count(const Shape& shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }

  Status Keep(const RecordSpec& spec, const Occurrence& occurrence,
              const StridedView& view) {
    const auto itemsize = Info(spec.dtype).itemsize;
    const int64_t offset = values_.end();
    StridedGather gather(view.data, spec.local_shape, view.strides, itemsize);
    const auto [place, is_new] =
        places_.try_emplace(KeyOf(spec, occurrence), records_.size());
    const bool is_term = !is_new && ComesInTerms(spec);
    int64_t at = is_term ? records_[place->second].offset : 0;
    for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
      if (!is_term) {
        TTRACE_RETURN_IF_ERROR(values_.Add(tile));
        continue;
      }
      buffer_.resize(tile.size());
      TTRACE_RETURN_IF_ERROR(values_.Read(at, buffer_));
      AddTerm(spec.dtype, tile, buffer_);
      TTRACE_RETURN_IF_ERROR(values_.Replace(at, buffer_));
      at += static_cast<int64_t>(tile.size());
    }
    if (!is_term) {
      records_.push_back({spec, occurrence, offset,
                          static_cast<size_t>(values_.end() - offset)});
    }
    return Done{};
  }

  static Status SayBatch(std::span<const int64_t> micro_batches, Held& held) {
    if (held.spec.batch_dim < 0) return Done{};
    const auto batch = static_cast<size_t>(held.occurrence.batch);
    if (batch >= micro_batches.size() || micro_batches[batch] < 1) {
      return Invalid(Abridged(held.spec.fqn) + ": of a batch without a size");
    }
    held.spec.global_shape[static_cast<size_t>(held.spec.batch_dim)] *=
        micro_batches[batch];
    return Done{};
  }

  Status HandOn(const Held& held) {
    buffer_.resize(held.bytes);
    TTRACE_RETURN_IF_ERROR(values_.Read(held.offset, buffer_));
    return writer_->Append(
        held.spec, held.occurrence,
        {buffer_.data(), RowMajorStrides(held.spec.local_shape)});
  }

  void Forget() {
    records_.clear();
    places_.clear();
    values_.Clear();
  }

  const pid_t owner_ = ::getpid();
  std::unique_ptr<TraceWriter> writer_;
  HeldValues values_;
  bool holds_ = false;
  std::vector<Held> records_;  // in the order in which they came
  std::map<HeldKey, size_t> places_;
  std::vector<std::byte> buffer_;
  std::optional<Error> failure_;  // a disk that is full, say
};

}  // namespace

std::unique_ptr<TraceWriter> HoldRecords(std::unique_ptr<TraceWriter> writer,
                                         std::string folder) {
  return std::make_unique<HoldingWriter>(std::move(writer), std::move(folder));
}

}  // namespace ttrace
