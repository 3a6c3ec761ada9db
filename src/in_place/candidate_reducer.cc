#include "src/in_place/candidate_reducer.h"

#include <map>
#include <optional>
#include <utility>

#include "src/align/catalog.h"
#include "src/compare/cells/compare_cells.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/compared_piece.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/compare/sweep.h"
#include "src/experiment/leg_names.h"
#include "src/experiment/leg_plan.h"
#include "src/experiment/side.h"
#include "src/in_place/leg_reducer.h"
#include "src/judge/constants.h"
#include "src/judge/maxima.h"
#include "src/judge/rule.h"
#include "src/measure/element_scale.h"
#include "src/measure/exact_values.h"
#include "src/measure/routing_flips.h"
#include "src/measure/stored_replays.h"
#include "src/measure/term_of_sum.h"
#include "src/numeric/sketch.h"
#include "src/step/own_steps.h"
#include "src/trace/piece_in_memory.h"

namespace ttrace {
namespace {

class CandidateReducer final : public Reducer {
 public:
  CandidateReducer(const RankMeta& meta, const std::vector<Leg>& legs,
                   std::string reference, std::shared_ptr<ElementScales> scales)
      : meta_(meta),
        own_(MakeLegReducer(meta, legs, std::move(scales))),
        folder_(std::move(reference)),
        memory_(meta),
        own_steps_(meta) {}

  std::vector<Leg> BasesOf(const Leg& leg) const override {
    return own_->BasesOf(leg);
  }
  bool IsBase(const RecordFields& record) const override {
    return own_->IsBase(record);
  }
  Result<std::optional<Reduced>> Reduce(const RecordFields& record,
                                        const StridedView& values,
                                        const RecordFields& base,
                                        WrittenRecords& written) override {
    return own_->Reduce(record, values, base, written);
  }
  Result<std::optional<Summarized>> Summarize(
      const RecordFields& record, const StridedView& values) override {
    return own_->Summarize(record, values);
  }

  Leg RepeatedBy(const Leg& leg) const override {
    return leg == kReplay ? kReal : Leg();
  }

  bool IsDecidedLater(const RecordFields& record) const override {
    return OwnSteps::IsOfStep(record);
  }
  void Wrote(const RecordFields& record, const StridedView& values,
             const WrittenRecords& written) override {
    own_->Wrote(record, values, written);
    own_steps_.Wrote(record);
  }
  void Noted(const std::string& kind, const std::string& json_object) override {
    own_steps_.Noted(kind, json_object);
  }

  // State is judged by the step that left it, and beside the reference's only
  // measured: of a step that is right, and of a right gradient, no values are
  // kept.
  Decisions Decide(int iteration, const DeferredRecords& aside,
                   WrittenRecords& written) override {
    Decisions out;
    const LegPlan* plan = PlanOf(kReal);
    if (plan == nullptr) return out;
    const auto made = own_steps_.Replay(iteration, aside, written, *reference_);
    if (!made.ok()) return out;
    for (const auto& [step, replay] : made->steps) {
      out.notes.emplace_back(kReplayedStepNote, EncodeReplay(step, replay));
    }
    for (const Record& record : made->held) {
      const auto step =
          made->steps.find({record.id().iteration, record.id().fqn});
      out.records.push_back(step != made->steps.end() &&
                                    IsRight(step->second) &&
                                    HasCloseGradient(step->first)
                                ? CompareState(*plan, *made->trace, record)
                                : std::nullopt);
    }
    return out;
  }

  std::optional<Compared> Compare(const RecordFields& record,
                                  const StridedView& values,
                                  uint64_t xxh3) override {
    if (!Info(record.dtype).floating || record.routed ||
        IsTermOfSum(meta_.MeshOf(record.grid), record.placements, false)) {
      return std::nullopt;
    }
    const LegPlan* plan = PlanOf(record.leg);
    if (plan == nullptr) return std::nullopt;
    if (plan->name == kReal && record.id.role == Role::kGradReduced) {
      JudgeGradient(*plan, record, values);
    }
    if (plan->name == kReal && !IsOfThePasses(record)) return std::nullopt;
    // What cannot be read now may be by a check: the values are kept for it.
    auto piece = ComparePiece(*plan, record, values, xxh3);
    if (!piece.ok() || !*piece) return std::nullopt;
    Compared out;
    out.legs = {plan->reference_leg};
    if ((*piece)->legs.size() > 1) out.legs.push_back(plan->fp32_leg);
    out.bytes = EncodeComparedPiece(**piece);
    if (static_cast<int64_t>(out.bytes.size()) >= record.extent.bytes) {
      return std::nullopt;
    }
    return out;
  }

 private:
  // Whether a check may find that the rows of the batch lie elsewhere than the
  // record says (experiment/batch_readings.h).
  static bool MayBeReadOtherwise(const RecordFields& record,
                                 const TensorPieces& reference) {
    const Record theirs = reference.pieces.front();
    const auto open = [](const std::optional<BatchRows>& rows,
                         int micro_batch) { return !rows && micro_batch >= 0; };
    const auto dim = [](const std::optional<BatchRows>& rows) {
      return rows ? rows->dim : -1;
    };
    return open(record.rows, record.micro_batch) ||
           open(theirs.rows(), theirs.micro_batch()) ||
           dim(record.rows) != dim(theirs.rows());
  }

  // Of the run as it was, values are kept by which rows are found and copied
  // (what the model is fed), of what a step is made of, and by which decisions
  // of a router are judged.
  static bool IsOfThePasses(const RecordFields& record) {
    switch (record.id.role) {
      case Role::kInput:
        return !record.id.fqn.empty();
      case Role::kOutput:
        return record.id.arg != kScoresArg;
      case Role::kGradOutput:
      case Role::kGradInput:
      case Role::kGradLocal:
        return true;
      default:
        return false;
    }
  }

  const LegPlan* PlanOf(const Leg& leg) {
    if (leg.is_noise()) return nullptr;
    const auto [found, is_new] = plans_.try_emplace(leg);
    if (is_new && Opened()) found->second = PlanOfLeg(*reference_, leg);
    return found->second ? &*found->second : nullptr;
  }

  bool Opened() {
    if (!tried_) {
      tried_ = true;
      Result<Side> side = Side::Open(folder_, FindLegFolders(folder_));
      if (side.ok()) reference_ = std::make_unique<Side>(*std::move(side));
    }
    return reference_ != nullptr;
  }

  // Of the whole tensor of the reference: read once for all its pieces and
  // micro-batches.
  Result<double> ElementScaleOfTensor(const LegPlan& plan, const TensorId& id,
                                      const TensorPieces& pieces) {
    if (id.iteration != iteration_) {
      element_scales_.clear();
      iteration_ = id.iteration;
    }
    if (!MeasuresElements(*reference_, plan, id, pieces)) return 0.0;
    const auto key = std::pair(plan.reference_leg, id);
    const auto known = element_scales_.find(key);
    if (known != element_scales_.end()) return known->second;
    TTRACE_ASSIGN_OR_RETURN(
        const ElementScale scale,
        MeasureElementScale(*reference_, plan, id, pieces, nullptr));
    element_scales_.emplace(key, scale.value);
    return scale.value;
  }

  // Nothing: the values are kept.
  std::optional<Compared> CompareState(const LegPlan& plan, const Trace& trace,
                                       const Record& record) {
    const TensorPieces* theirs =
        reference_->FindSameValue(plan.reference_leg, record.id());
    const RecordFields fields = record.fields();
    if (!Info(fields.dtype).floating || !MayBeCompared(fields, theirs) ||
        theirs->pieces.front().dtype() != fields.dtype ||
        IsTermOfSum(meta_.MeshOf(fields.grid), fields.placements, false)) {
      return std::nullopt;
    }
    auto with = CompareWith(*theirs, trace, record, 0.0);
    if (!with.ok()) return std::nullopt;
    const ErrorStats stats = with->sums.Stats();
    if (stats.count != fields.layout.local_count() ||
        stats.nonfinite_cand > 0) {
      return std::nullopt;
    }
    auto summary = SummarizeStored(trace, record, kSketchBuckets);
    if (!summary.ok()) return std::nullopt;
    ComparedPiece piece;
    piece.xxh3 = fields.extent.xxh3;
    piece.legs.push_back(*std::move(with));
    piece.summary = *std::move(summary);  // for another reference
    Compared out;
    out.legs = {plan.reference_leg};
    out.bytes = EncodeComparedPiece(piece);
    if (static_cast<int64_t>(out.bytes.size()) >= fields.extent.bytes) {
      return std::nullopt;
    }
    return out;
  }

  // Remembers whether it is close to the reference's: state that a step makes
  // of a gradient that is not keeps its values, too.
  void JudgeGradient(const LegPlan& plan, const RecordFields& record,
                     const StridedView& values) {
    if (record.id.iteration != gradients_of_) {
      gradients_.clear();
      gradients_of_ = record.id.iteration;
    }
    const auto close = CompareIfClose(plan, record, values);
    bool& all = gradients_.try_emplace(record.id.fqn, true).first->second;
    all = all && close.ok() && close->has_value();
  }

  bool HasCloseGradient(const StepOfParameter& step) const {
    const auto found = gradients_.find(step.fqn);
    return step.iteration == gradients_of_ && found != gradients_.end() &&
           found->second;
  }

  // With the leg of the plan; nothing if a diagnosis may want the values, or a
  // check.
  Result<std::optional<ComparedPiece::With>> CompareIfClose(
      const LegPlan& plan, const RecordFields& record,
      const StridedView& values) {
    using With = std::optional<ComparedPiece::With>;
    const TensorPieces* pieces =
        reference_->FindSameValue(plan.reference_leg, record.id);
    if (!MayBeCompared(record, pieces)) return With();
    // Where the two compute in different precisions a check may compare other
    // legs.
    if (plan.name == kReal && pieces->pieces.front().dtype() != record.dtype) {
      return With();
    }
    memory_.Hold(record, values);
    TTRACE_ASSIGN_OR_RETURN(const double scale,
                            ElementScaleOfTensor(plan, record.id, *pieces));
    TTRACE_ASSIGN_OR_RETURN(
        ComparedPiece::With with,
        CompareWith(*pieces, memory_, memory_.records().front(), scale));
    const ErrorStats stats = with.sums.Stats();
    if (stats.count != record.layout.local_count()) return With();
    if (!stats.bitwise_equal()) {
      TTRACE_ASSIGN_OR_RETURN(const bool close,
                              IsClose(plan, record, *pieces, stats, scale));
      if (!close) return With();
    }
    return With(std::move(with));
  }

  // Nothing: the values are kept.
  Result<std::optional<ComparedPiece>> ComparePiece(const LegPlan& plan,
                                                    const RecordFields& record,
                                                    const StridedView& values,
                                                    uint64_t xxh3) {
    using Piece = std::optional<ComparedPiece>;
    TTRACE_ASSIGN_OR_RETURN(auto with, CompareIfClose(plan, record, values));
    if (!with) return Piece();
    const double scale = with->element_scale;
    ComparedPiece out;
    out.xxh3 = xxh3;
    out.legs.push_back(*std::move(with));
    if (plan.name != kReal) return Piece(std::move(out));
    if (const auto* hp = reference_->FindSameValue(plan.fp32_leg, record.id)) {
      if (!MayBeCompared(record, hp)) return Piece();
      TTRACE_ASSIGN_OR_RETURN(
          ComparedPiece::With beside,
          CompareWith(*hp, memory_, memory_.records().front(), scale));
      out.legs.push_back(std::move(beside));
    }
    // A replay may differ, and the run as it was may be compared with others.
    TTRACE_ASSIGN_OR_RETURN(out.summary,
                            ttrace::Summarize({values.data, record.dtype,
                                               values.strides, record.layout},
                                              kSketchBuckets));
    return Piece(std::move(out));
  }

  // Of a leg of the reference with this tensor; null: there is none.
  static bool MayBeCompared(const RecordFields& record,
                            const TensorPieces* pieces) {
    return pieces != nullptr && !pieces->unplaced && !HasSummaries(*pieces) &&
           pieces->global_shape() == record.layout.global_shape() &&
           !MayBeReadOtherwise(record, *pieces);
  }

  // `record`: of `trace`.
  static Result<ComparedPiece::With> CompareWith(const TensorPieces& reference,
                                                 const Trace& trace,
                                                 const Record& record,
                                                 double element_scale) {
    TTRACE_ASSIGN_OR_RETURN(auto theirs, GroupInstances(reference, {}));
    const ReferenceInstances opposite(std::move(theirs));
    TensorPieces own;
    own.trace = &trace;
    own.pieces.push_back(record);
    TTRACE_ASSIGN_OR_RETURN(const auto groups, GroupInstances(own, {}));
    const Instance& instance = groups.front().instances.front();
    const PlacedInstance placed = {instance, groups.front().layout};
    const std::vector<PlacedInstance> others =
        opposite.Opposite(instance, placed.layout);
    ComparedPiece::With with;
    with.reference = DigestOf(others);
    with.element_scale = element_scale;
    TTRACE_ASSIGN_OR_RETURN(with.sums,
                            CompareInstances(others, placed, element_scale,
                                             CompareOptions{}.tile_elements));
    return with;
  }

  // Beyond doubt, were this piece the whole tensor.
  Result<bool> IsClose(const LegPlan& plan, const RecordFields& record,
                       const TensorPieces& pieces, const ErrorStats& stats,
                       double element_scale) {
    if (HasNoTolerance(record.id.role) || stats.nonfinite_ref > 0 ||
        stats.nonfinite_cand > 0) {
      return false;
    }
    LegErrors errors;
    errors.leg = plan.name;
    errors.stats = stats;
    errors.rounding.unit_roundoff = plan.unit_roundoff;
    for (const Leg& leg : plan.noise_legs) {
      const TensorPieces* noisy = reference_->FindSameValue(leg, record.id);
      if (noisy == nullptr) continue;
      TTRACE_ASSIGN_OR_RETURN(
          const auto noise,
          CompareRerunWithin(pieces, *noisy, {record.layout}, element_scale));
      errors.noise.push_back(noise.front());
    }
    LegJudgement judged = JudgeLeg(errors);
    if (!errors.noise.empty()) JudgeMaxima(errors, &judged);
    return judged.checkable && judged.headroom <= kSuspectHeadroom;
  }

  const RankMeta meta_;
  const std::unique_ptr<Reducer> own_;
  const std::string folder_;
  bool tried_ = false;
  std::unique_ptr<Side> reference_;
  std::map<Leg, std::optional<LegPlan>> plans_;  // by rerun
  int iteration_ = -1;
  std::map<std::pair<Leg, TensorId>, double> element_scales_;
  PieceInMemory memory_;
  OwnSteps own_steps_;
  int gradients_of_ = -1;                  // iteration
  std::map<std::string, bool> gradients_;  // by parameter: whether it is close
};

}  // namespace

std::unique_ptr<Reducer> MakeCandidateReducer(
    const RankMeta& meta, const std::vector<Leg>& legs, std::string reference,
    std::shared_ptr<ElementScales> scales) {
  return std::make_unique<CandidateReducer>(meta, legs, std::move(reference),
                                            std::move(scales));
}

}  // namespace ttrace
