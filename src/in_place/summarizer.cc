#include "src/in_place/summarizer.h"

#include <optional>
#include <string>
#include <vector>

#include "src/compare/summaries/tensor_summary.h"
#include "src/measure/routing_flips.h"

namespace ttrace {
namespace {

class Summarizer final : public Reducer {
 public:
  explicit Summarizer(size_t buckets) : buckets_(buckets) {}

  // Without values nothing is measured against anything.
  std::vector<Leg> BasesOf(const Leg&) const override { return {}; }
  bool IsBase(const RecordFields&) const override { return false; }
  Result<std::optional<Reduced>> Reduce(const RecordFields&, const StridedView&,
                                        const RecordFields&,
                                        WrittenRecords&) override {
    return std::optional<Reduced>();
  }

  Result<std::optional<Summarized>> Summarize(
      const RecordFields& record, const StridedView& values) override {
    return Make(record, values, DoInTurn);
  }

  // Nothing else is made of a record, and nothing that was written before goes
  // into it.
  std::optional<Summarized> SummarizeAlone(
      const RecordFields& record, const StridedView& values,
      const DoParts& parts) const override {
    auto made = Make(record, values, parts);
    return made.ok() ? *std::move(made) : std::nullopt;
  }

 private:
  Result<std::optional<Summarized>> Make(const RecordFields& record,
                                         const StridedView& values,
                                         const DoParts& parts) const {
    if (!MayBeSummarized(record, buckets_)) return std::optional<Summarized>();
    TTRACE_ASSIGN_OR_RETURN(const TensorSummary summary,
                            ttrace::Summarize({values.data, record.dtype,
                                               values.strides, record.layout},
                                              buckets_, parts));
    return std::optional<Summarized>({KindOf(summary), EncodeSummary(summary)});
  }

  const size_t buckets_;
};

}  // namespace

bool MayBeSummarized(const RecordFields& record, size_t buckets) {
  return Info(record.dtype).floating && !record.routed &&
         record.id.arg != kScoresArg &&
         static_cast<int64_t>(buckets * sizeof(float)) < record.extent.bytes &&
         EncodedSummaryBytes(buckets, record.layout, record.dtype) <
             record.extent.bytes;
}

std::unique_ptr<Reducer> MakeSummarizer(size_t buckets) {
  return std::make_unique<Summarizer>(buckets);
}

}  // namespace ttrace
