#include "src/measure/measure_tensor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/cells/compare_cells.h"
#include "src/compare/compared_piece.h"
#include "src/compare/grouped_once.h"
#include "src/compare/planned_comparison.h"
#include "src/compare/record_cache.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/compare/sweep.h"
#include "src/experiment/module_names.h"
#include "src/experiment/parameter_roles.h"
#include "src/measure/element_scale.h"
#include "src/measure/exact_values.h"
#include "src/measure/repeated_bytes.h"

namespace ttrace {

// What several comparisons of one tensor read and sort.
struct ReadOnce {
  RecordCache cache;
  GroupedOnce grouped;
};

namespace {

// What the planned pairs of legs of one tensor have in common: a run's legs are
// the reference of its isolated ones, too.
struct SharedFacts {
  // Two legs of the reference.
  struct Pair {
    Leg leg;
    Leg against;
    double element_scale = 0;
    const std::vector<Layout>& regions;
    std::unique_ptr<PlannedWithin> planned;
    bool finished = false;
    std::optional<PairFacts> facts;
  };

  explicit SharedFacts(RecordCache* record_cache)
      : cache(*record_cache), sweep(record_cache) {}

  RecordCache& cache;
  Sweep sweep;
  std::map<Leg, double> element_scales;  // by leg of the reference
  std::vector<std::unique_ptr<Pair>> pairs;
};

// Roles that must be finite even where there is nothing to compare with.
// Activations may hold infinities on purpose (masked scores).
bool MustBeFinite(Role role) {
  switch (role) {
    case Role::kLoss:
    case Role::kGradOutput:
    case Role::kGradInput:
    case Role::kGradLocal:
    case Role::kGradReduced:
    case Role::kGradNorm:
      return true;
    default:
      return false;
  }
}

CompareOptions Once(ReadOnce* once, CompareOptions options = {}) {
  options.cache = &once->cache;
  options.grouped = &once->grouped;
  options.join_copies = true;
  return options;
}

// Where values were not kept: each piece with the one in its place, copies
// included.
Result<std::optional<RepeatFacts>> RepeatOfPieces(const TensorPieces& real,
                                                  const TensorPieces& replay) {
  RepeatFacts out;
  for (const Record& piece : replay.pieces) {
    const std::optional<Record> run = CounterpartOf(real, piece);
    if (!run) return std::optional<RepeatFacts>();
    const auto alone = [](const TensorPieces& of, const Record& record) {
      TensorPieces one;
      one.trace = of.trace;
      one.pieces.push_back(record);
      return one;
    };
    const auto compared =
        CompareTensor(alone(real, *run), alone(replay, piece));
    if (!compared.ok()) {
      if (IsFact(compared.error())) return std::optional<RepeatFacts>();
      return compared.error();
    }
    out.total.Merge(compared->total);
  }
  return std::optional<RepeatFacts>(out);
}

Result<std::optional<RepeatFacts>> MeasureRepeat(const Side& side,
                                                 const TensorId& id,
                                                 const TensorPieces& real,
                                                 ReadOnce* once) {
  const TensorPieces* replay = side.FindSameValue(kReplay, id);
  if (replay == nullptr) return std::optional<RepeatFacts>();
  if (IsSameBytes(real, *replay) || HasEqualBytes(real, *replay)) {
    RepeatFacts same;
    same.total.count = real.elements_held();
    return std::optional<RepeatFacts>(same);
  }
  if (WasComparedInPlace(real)) return RepeatOfPieces(real, *replay);
  const auto compared = CompareTensor(real, *replay, Once(once));
  if (!compared.ok()) {
    if (IsFact(compared.error())) return std::optional<RepeatFacts>();
    return compared.error();
  }
  return std::optional<RepeatFacts>(RepeatFacts{compared->total});
}

// The comparisons of one tensor in one planned pair of legs: all that are to be
// made are planned, and what was found is taken after the sweep.
class LegMeasurer {
 public:
  LegMeasurer(const Side& reference, const LegPlan& plan, const TensorId& id,
              const TensorPieces& r, const TensorPieces& c, bool token_sum,
              const ExactSums* exact_sums, SharedFacts* shared,
              std::atomic<int64_t>* bytes)
      : side_(reference),
        plan_(plan),
        id_(id),
        r_(r),
        c_(c),
        token_sum_(token_sum),
        exact_sums_(exact_sums),
        shared_(*shared),
        bytes_(bytes) {}
  LegMeasurer(const LegMeasurer&) = delete;
  LegMeasurer& operator=(const LegMeasurer&) = delete;

  // `rows` says which rows of the candidate are which. `repeat`: the reference
  // was replayed and differs, so its replay is measured too.
  void Plan(CompareOptions rows, bool repeat) {
    const auto scale = ScaleOfElements();
    if (!scale.ok()) {
      planned_ = scale.error();
      return;
    }
    own_.element_scale = *scale;
    aligned_ = std::move(rows);
    aligned_.element_scale = own_.element_scale;
    own_.grouped = aligned_.grouped;
    candidate_.emplace(r_, c_, aligned_, &shared_.sweep);
    // Without regions nothing else is asked for.
    if (!candidate_->status().ok()) return;
    for (const Leg& leg : plan_.noise_legs) {
      const TensorPieces* noisy = side_.FindSameValue(leg, id_);
      if (noisy == nullptr) continue;
      noise_.push_back({noisy, std::make_unique<PlannedRerun>(
                                   r_, *noisy, candidate_->regions(),
                                   own_.element_scale, &shared_.sweep)});
    }
    if (repeat) {
      replay_ = side_.FindSameValue(kReplay, id_);
      if (replay_ != nullptr) repeat_ = PlanWithin(r_, *replay_, own_);
    }
    PlanFp32();
  }

  Status Finish(LegFacts* out) {
    TTRACE_RETURN_IF_ERROR(planned_);
    TTRACE_ASSIGN_OR_RETURN(out->candidate, candidate_->Finish());
    Count(r_, c_, out->candidate.total.count);
    for (const Noise& noise : noise_) {
      TTRACE_ASSIGN_OR_RETURN(
          auto facts, Together(noise.planned->Finish(), r_, *noise.pieces));
      if (facts) out->noise.push_back(*std::move(facts));
    }
    if (repeat_ != nullptr) {
      TTRACE_ASSIGN_OR_RETURN(out->repeat,
                              Together(repeat_->Finish(), r_, *replay_));
    }
    TTRACE_RETURN_IF_ERROR(MeasureRouting(out));
    return FinishFp32(out);
  }

 private:
  struct Noise {
    const TensorPieces* pieces = nullptr;
    std::unique_ptr<PlannedRerun> planned;
  };

  Status MeasureRouting(LegFacts* out) {
    if (!MayBeRoutingMap(id_, r_) || !MayBeRoutingMap(id_, c_)) return Done{};
    TensorId id = id_;
    id.arg = kScoresArg;
    const TensorPieces* scores = side_.FindSameValue(plan_.reference_leg, id);
    if (scores == nullptr) return Done{};
    if (out->candidate.total.bitwise_equal()) {
      const Shape shape = r_.global_shape();
      out->flips = RoutingFlips{shape[0] * shape[1], {}};
      return Done{};
    }
    auto flips = MeasureFlips(r_, c_, *scores, aligned_);
    if (flips.ok()) {
      out->flips = *std::move(flips);
    } else if (!IsFact(flips.error())) {
      return flips.error();
    }
    return Done{};
  }

  void PlanFp32() {
    if (token_sum_) {
      sum_hp_ = side_.FindSameValue(plan_.reference_fp32_leg, id_);
      if (sum_hp_ != nullptr) PlanOwn(plan_.reference_fp32_leg, *sum_hp_);
    }
    hp_ = side_.FindSameValue(plan_.fp32_leg, id_);
    if (hp_ == nullptr) return;
    candidate_hp_ = PlanWithin(*hp_, c_, aligned_);
    PlanOwn(plan_.fp32_leg, *hp_);
  }

  Status FinishFp32(LegFacts* out) {
    if (sum_hp_ != nullptr) {
      TTRACE_ASSIGN_OR_RETURN(out->reference_fp32,
                              FinishOwn(plan_.reference_fp32_leg, *sum_hp_));
    } else if (token_sum_ && exact_sums_ != nullptr) {
      TTRACE_RETURN_IF_ERROR(MeasureExactSum(out));
    }
    if (hp_ == nullptr) return Done{};
    TTRACE_ASSIGN_OR_RETURN(out->candidate_fp32,
                            Together(candidate_hp_->Finish(), *hp_, c_));
    TTRACE_ASSIGN_OR_RETURN(out->reference_fp32,
                            FinishOwn(plan_.fp32_leg, *hp_));
    return Done{};
  }

  std::unique_ptr<PlannedWithin> PlanWithin(const TensorPieces& a,
                                            const TensorPieces& b,
                                            const CompareOptions& options) {
    return std::make_unique<PlannedWithin>(a, b, candidate_->regions(), options,
                                           &shared_.sweep);
  }

  // The reference's leg against another one of its own, once for all pairs of
  // legs.
  SharedFacts::Pair* FindOwn(const Leg& leg) {
    for (const auto& known : shared_.pairs) {
      if (known->leg == leg && known->against == plan_.reference_leg &&
          known->element_scale == own_.element_scale &&
          known->regions == candidate_->regions()) {
        return known.get();
      }
    }
    return nullptr;
  }

  void PlanOwn(const Leg& leg, const TensorPieces& pieces) {
    if (FindOwn(leg) != nullptr) return;
    shared_.pairs.push_back(
        std::unique_ptr<SharedFacts::Pair>(new SharedFacts::Pair{
            leg, plan_.reference_leg, own_.element_scale, candidate_->regions(),
            PlanWithin(pieces, r_, own_), false, std::nullopt}));
  }

  Result<std::optional<PairFacts>> FinishOwn(const Leg& leg,
                                             const TensorPieces& pieces) {
    SharedFacts::Pair& pair = *FindOwn(leg);
    if (!pair.finished) {
      TTRACE_ASSIGN_OR_RETURN(pair.facts,
                              Together(pair.planned->Finish(), pieces, r_));
      pair.finished = true;
    }
    return pair.facts;
  }

  // Without fp32 legs a sum made again in double is the witness. It is the
  // whole's, and stands for every part.
  Status MeasureExactSum(LegFacts* out) {
    const TensorPieces* real = side_.FindSameValue(kReal, id_);
    if (real == nullptr) return Done{};
    const auto error = exact_sums_->ErrorOf(id_, *real);
    if (!error.ok()) {
      if (IsFact(error.error())) return Done{};
      return error.error();
    }
    if (!*error) return Done{};
    out->reference_fp32 = PairFacts{**error, {}};
    out->reference_fp32->regions.assign(candidate_->regions().size(), **error);
    return Done{};
  }

  // Nothing if the two cannot be compared: such a leg says nothing.
  Result<std::optional<PairFacts>> Together(
      Result<std::vector<ErrorStats>> regions, const TensorPieces& a,
      const TensorPieces& b) {
    if (!regions.ok()) {
      if (IsFact(regions.error())) return std::optional<PairFacts>();
      return regions.error();
    }
    PairFacts facts;
    facts.regions = *std::move(regions);
    for (const ErrorStats& region : facts.regions) facts.total.Merge(region);
    Count(a, b, facts.total.count);
    return std::optional<PairFacts>(std::move(facts));
  }

  // 0: errors of single elements are not measured.
  Result<double> ScaleOfElements() const {
    if (!MeasuresElements(side_, plan_, id_, r_)) return 0.0;
    const auto known = shared_.element_scales.find(plan_.reference_leg);
    if (known != shared_.element_scales.end()) return known->second;
    TTRACE_ASSIGN_OR_RETURN(
        const ElementScale scale,
        MeasureElementScale(side_, plan_, id_, r_, &shared_.cache));
    Count(r_, r_, scale.elements / 2);
    shared_.element_scales.emplace(plan_.reference_leg, scale.value);
    return scale.value;
  }

  void Count(const TensorPieces& a, const TensorPieces& b,
             int64_t elements) const {
    *bytes_ += elements * (Info(a.pieces.front().dtype()).itemsize +
                           Info(b.pieces.front().dtype()).itemsize);
  }

  const Side& side_;  // the reference
  const LegPlan& plan_;
  const TensorId& id_;
  const TensorPieces& r_;
  const TensorPieces& c_;
  bool token_sum_;  // gradient that low precision sums over tokens
  const ExactSums* exact_sums_;
  SharedFacts& shared_;
  std::atomic<int64_t>* bytes_;
  CompareOptions own_;      // legs of the reference among each other
  CompareOptions aligned_;  // the candidate against one of these

  // What is planned.
  Status planned_ = Done{};
  std::optional<PlannedComparison> candidate_;
  std::vector<Noise> noise_;
  const TensorPieces* replay_ = nullptr;
  std::unique_ptr<PlannedWithin> repeat_;
  const TensorPieces* sum_hp_ = nullptr;
  const TensorPieces* hp_ = nullptr;
  std::unique_ptr<PlannedWithin> candidate_hp_;
};

}  // namespace

bool InIsolation(Role role) {
  switch (role) {
    case Role::kInput:
    case Role::kOutput:
    case Role::kLoss:
    case Role::kGradOutput:
    case Role::kGradInput:
    case Role::kGradLocal:
    case Role::kGradReduced:
      return true;
    default:
      return false;
  }
}

TensorMeasurer::TensorMeasurer(const Side* reference, const Side& candidate,
                               const std::vector<LegPlan>& plans,
                               const RowAlignment& rows)
    : reference_(reference), candidate_(candidate), plans_(plans), rows_(rows) {
  std::set<std::string> others;
  std::set<int> iterations;
  for (const auto& [id, pieces] : candidate.real()) {
    iterations.insert(id.iteration);
    if (id.role != Role::kInput) continue;
    (IsExact(pieces) ? lookups_ : others).insert(id.fqn);
  }
  for (const std::string& module : others) lookups_.erase(module);
  for (const int iteration : iterations) {
    if (candidate.Completed(iteration) &&
        (reference == nullptr || reference->Completed(iteration))) {
      completed_.insert(iteration);
    }
  }
  if (reference != nullptr && UnitRoundoff(reference->ComputeDType().value_or(
                                  DType::kF32)) > UnitRoundoff(DType::kF32)) {
    exact_sums_ = std::make_unique<ExactSums>(*reference);
  }
}

Result<TensorFacts> TensorMeasurer::Measure(const TensorId& id,
                                            const TensorPieces& candidate,
                                            std::atomic<int64_t>* bytes) const {
  TensorFacts out;
  out.id = id;
  out.exact = IsExact(candidate);
  out.dtype = candidate.pieces.front().dtype();
  out.candidate_shape = candidate.global_shape();
  out.vector = out.candidate_shape.size() <= 1;
  out.lookup = IsParameterGradient(id.role) && !out.vector &&
               lookups_.contains(ParentName(id.fqn));
  out.complete = completed_.contains(id.iteration);
  if (candidate.unplaced) out.unplaced = *candidate.unplaced;
  ReadOnce once;
  Status status = MeasureCandidate(id, candidate, &once, &out, bytes);
  if (status.ok() && reference_ != nullptr) {
    status = MeasureAgainstReference(id, candidate, &once, &out, bytes);
  }
  if (status.ok()) return out;
  if (status.error().code() != ErrorCode::kCorrupt) return status.error();
  // Nothing measured of a damaged tensor is evidence.
  TensorFacts damaged;
  damaged.id = id;
  damaged.candidate_shape = out.candidate_shape;
  damaged.reference_shape = out.reference_shape;
  damaged.in_reference = out.in_reference;
  damaged.dtype = out.dtype;
  damaged.exact = out.exact;
  damaged.damage = status.error().message();
  return damaged;
}

Status TensorMeasurer::MeasureCandidate(const TensorId& id,
                                        const TensorPieces& candidate,
                                        ReadOnce* once, TensorFacts* out,
                                        std::atomic<int64_t>* bytes) const {
  TTRACE_ASSIGN_OR_RETURN(out->candidate_repeat,
                          MeasureRepeat(candidate_, id, candidate, once));
  auto replicas = CompareReplicas(candidate, Once(once));
  if (replicas.ok()) {
    out->replicas = *std::move(replicas);
  } else if (!IsFact(replicas.error())) {
    return replicas.error();
  }
  if (reference_ != nullptr || !MustBeFinite(id.role)) return Done{};
  auto own = CompareTensor(candidate, candidate, Once(once));
  if (!own.ok()) {
    if (!IsFact(own.error())) return own.error();
    out->trouble = own.error().message();
    return Done{};
  }
  *bytes += own->total.count * Info(candidate.pieces.front().dtype()).itemsize;
  out->own = *std::move(own);
  return Done{};
}

Status TensorMeasurer::MeasureAgainstReference(
    const TensorId& id, const TensorPieces& candidate, ReadOnce* once,
    TensorFacts* out, std::atomic<int64_t>* bytes) const {
  const TensorPieces* reference = reference_->FindSameValue(kReal, id);
  out->in_reference = reference != nullptr;
  if (reference == nullptr) return Done{};
  out->reference_shape = reference->global_shape();
  if (reference->unplaced) out->reference_unplaced = *reference->unplaced;
  const bool rows_known =
      id.role == Role::kData && FindOwnRows(id, candidate, out);
  if (out->reference_shape != out->candidate_shape) return Done{};
  // The optimizer reports a norm of its own gradients: no leg repeats a step.
  if (id.role == Role::kGradNorm) return Done{};
  TTRACE_ASSIGN_OR_RETURN(out->reference_repeat,
                          MeasureRepeat(*reference_, id, *reference, once));
  TTRACE_RETURN_IF_ERROR(MeasureLegs(id, once, out, bytes));
  if (id.role == Role::kParamUpdated) {
    TTRACE_ASSIGN_OR_RETURN(out->update,
                            FindSkippedUpdate(*reference_, candidate_, id));
  }
  if (rows_known) return Done{};
  const bool replaced =
      (id.role == Role::kParam && candidate_.facts().weights_grafted) ||
      (id.role == Role::kData && candidate_.facts().data_grafted);
  if (!replaced || out->legs.empty() || !out->legs.front().usable) {
    return Done{};
  }
  std::set<int> wrong;
  for (const InstanceStats& part : out->legs.front().candidate.instances) {
    if (part.stats.bitwise_equal()) continue;
    wrong.insert(part.ranks.begin(), part.ranks.end());
  }
  std::vector<const TensorPieces*> beside;
  if (id.role == Role::kData) {
    for (const auto& [other, pieces] : candidate_.real()) {
      if (other.role == Role::kData && other.iteration == id.iteration &&
          other != id) {
        beside.push_back(&pieces);
      }
    }
  }
  out->foreign_parts =
      FindRepeatedParts(candidate, {wrong.begin(), wrong.end()}, beside);
  return Done{};
}

bool TensorMeasurer::FindOwnRows(const TensorId& id,
                                 const TensorPieces& candidate,
                                 TensorFacts* out) const {
  const FedCall of =
      candidate_.fed_rows().CallOf(id, candidate.pieces.front().micro_batch());
  const RowsOfCall* call = rows_.Find(of);
  if (call == nullptr) return false;
  // Of an item whose rows are the reference's nothing was replaced.
  out->own_rows = call->foreign.empty() &&
                  (!call->spaces.empty() || call->shared || call->in_excess);
  if (!call->repeated.rows.empty()) {
    out->foreign_parts =
        RepeatedParts{call->repeated.ranks, call->repeated.ranks};
  }
  return true;
}

Status TensorMeasurer::MeasureLegs(const TensorId& id, ReadOnce* once,
                                   TensorFacts* out,
                                   std::atomic<int64_t>* bytes) const {
  struct Leg {
    size_t plan = 0;
    const TensorPieces* candidate = nullptr;
    std::unique_ptr<LegMeasurer> measurer;
  };
  const bool token_sum =
      IsParameterGradient(id.role) && (out->vector || out->lookup);
  SharedFacts shared(&once->cache);
  std::vector<Leg> legs;
  for (size_t i = 0; i < plans_.size(); ++i) {
    const LegPlan& plan = plans_[i];
    if (plan.isolated && !InIsolation(id.role)) continue;
    const TensorPieces* r = reference_->FindSameValue(plan.reference_leg, id);
    const TensorPieces* c = candidate_.Find(plan.candidate_leg, id);
    if (r == nullptr || c == nullptr) continue;
    legs.push_back(
        {i, c,
         std::make_unique<LegMeasurer>(*reference_, plan, id, *r, *c, token_sum,
                                       exact_sums_.get(), &shared, bytes)});
    const bool repeat = plan.reference_leg == kReal && out->reference_repeat &&
                        !out->reference_repeat->bitwise();
    legs.back().measurer->Plan(Once(once, rows_.OptionsFor(candidate_, id, *c)),
                               repeat);
  }
  shared.sweep.Run();
  for (const Leg& leg : legs) {
    LegFacts facts;
    facts.plan = leg.plan;
    const Status status = leg.measurer->Finish(&facts);
    TTRACE_RETURN_IF_ERROR(
        TakeLeg(*leg.candidate, status, std::move(facts), out));
  }
  return Done{};
}

// `status`: of measuring `facts`.
Status TensorMeasurer::TakeLeg(const TensorPieces& candidate,
                               const Status& status, LegFacts facts,
                               TensorFacts* out) const {
  const LegPlan& plan = plans_[facts.plan];
  if (!status.ok()) {
    if (!IsFact(status.error())) return status.error();
    const size_t index = facts.plan;
    facts = LegFacts{};
    facts.plan = index;
    facts.trouble = status.error().message();
  } else {
    facts.usable = true;
  }
  if (plan.isolated && facts.usable && out->replicas.differing > 0) {
    // Copies that differ in the run as it was: do they on equal inputs?
    auto replicas = CompareReplicas(candidate);
    if (replicas.ok()) {
      facts.replicas = *std::move(replicas);
    } else if (!IsFact(replicas.error())) {
      return replicas.error();
    }
  }
  // What a replay of parts did not reach says nothing about the run.
  if (plan.isolated && (!facts.usable || !facts.candidate.complete())) {
    return Done{};
  }
  out->legs.push_back(std::move(facts));
  return Done{};
}

}  // namespace ttrace
