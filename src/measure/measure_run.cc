#include "src/measure/measure_run.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "src/base/for_each.h"
#include "src/experiment/execution_order.h"
#include "src/experiment/parameter_roles.h"
#include "src/experiment/unequal_starts.h"
#include "src/measure/measure_tensor.h"
#include "src/measure/padding_gradient.h"
#include "src/measure/stored_replays.h"
#include "src/step/step_tensors.h"

namespace ttrace {
namespace {

int StagesOf(const Side& side) {
  const DeviceMesh& mesh = side.trace().mesh();
  const int pp = mesh.Find("pp");
  return pp < 0 ? 1 : mesh.dims[static_cast<size_t>(pp)].size;
}

int64_t BytesOf(const TensorPieces* pieces) {
  if (pieces == nullptr) return 0;
  int64_t bytes = 0;
  for (const Record& piece : pieces->pieces) {
    // Opening and looking up a piece costs about as much as reading so much.
    constexpr int64_t kOfAPiece = 4096;
    bytes += piece.extent().bytes + kOfAPiece;
  }
  return bytes;
}

int64_t BytesOf(const UpdatedParameters& parameters) {
  int64_t bytes = 0;
  for (const auto& [expected, pieces] : parameters) {
    bytes += BytesOf(expected) + BytesOf(pieces);
  }
  return bytes;
}

int64_t BytesOf(const StepTensors& tensors) {
  int64_t bytes = 0;
  for (const StepTensor& field : tensors.fields) bytes += BytesOf(field.pieces);
  return bytes;
}

// Where the regions of a tensor lie nobody asks once it is measured, only how
// many there are; of a tensor on many ranks it is a good part of its facts.
void ForgetPlaces(TensorFacts* facts) {
  const auto forget = [](TensorComparison* comparison) {
    for (Layout& region : comparison->regions) region = Layout();
  };
  for (LegFacts& leg : facts->legs) forget(&leg.candidate);
  if (facts->own) forget(&*facts->own);
}

// All that can be measured apart, and by whom.
class Work {
 public:
  Work(const RunContext& context, const Share& share)
      : context_(context),
        share_(share),
        entries_(InOrder(context)),
        own_(*context.candidate, context.reference),
        stored_(ReadStoredReplays(context.candidate->trace())) {
    for (const StepOfParameter& step : own_.steps()) {
      if (context.Judges(step.iteration)) steps_.push_back(step);
    }
    if (context.reference != nullptr) {
      theirs_.emplace(*context.reference, nullptr);
      for (auto& update : UpdatesThatMatter(
               *context.reference, *context.candidate, context.iterations)) {
        updates_.push_back(std::move(update));
      }
    }
    norms_ = IterationsWithNorm(*context.candidate);
    TakeShare();
  }

  Result<Measurements> Measure() {
    Measurements out;
    if (context_.progress != nullptr) SayWhatThereIsToDo();
    TTRACE_RETURN_IF_ERROR(CompareUpdates(&out));
    TTRACE_RETURN_IF_ERROR(MeasureTensors(&out));
    TTRACE_RETURN_IF_ERROR(ReplaySteps(&out));
    AddDamage(context_.candidate->trace(), &out.damage);
    if (context_.reference != nullptr) {
      AddDamage(context_.reference->trace(), &out.reference_damage);
    }
    return out;
  }

  // What this share has to bring, for who has to trust another process.
  bool IsOf(const Measurements& measured) const {
    const bool facts = std::equal(
        measured.facts.begin(), measured.facts.end(), own_entries_.begin(),
        own_entries_.end(), [&](const TensorFacts& one, size_t i) {
          return one.id == entries_[i]->first &&
                 one.order == static_cast<int64_t>(i) &&
                 one.candidate_shape == entries_[i]->second.global_shape() &&
                 std::all_of(one.legs.begin(), one.legs.end(),
                             [&](const LegFacts& leg) {
                               return leg.plan < context_.plans.size();
                             });
        });
    std::set<TensorId> squares;
    for (const size_t i : own_entries_) {
      if (HasSquare(*entries_[i])) squares.insert(entries_[i]->first);
    }
    return facts && std::equal(measured.squares.begin(), measured.squares.end(),
                               squares.begin(), squares.end(),
                               [](const auto& one, const TensorId& id) {
                                 return one.first == id;
                               });
  }

 private:
  void SayWhatThereIsToDo() {
    sizes_ = Sizes();
    int64_t all = 0;
    for (const size_t i : own_entries_) all += sizes_[i];
    for (const size_t i : own_steps_) all += sizes_[StepPlace(i)];
    for (const size_t i : own_updates_) all += sizes_[UpdatePlace(i)];
    MeasureProgress& progress = *context_.progress;
    progress.tensors_total = static_cast<int64_t>(own_entries_.size());
    progress.work_total = all;
  }

  void CountWork(size_t place) {
    if (context_.progress != nullptr) context_.progress->work += sizes_[place];
  }
  void CountBytes(int64_t bytes) {
    if (context_.progress != nullptr) context_.progress->bytes_read += bytes;
  }

  // Where Sizes has a step and an update.
  size_t StepPlace(size_t i) const { return entries_.size() + i; }
  size_t UpdatePlace(size_t i) const {
    return entries_.size() + steps_.size() + i;
  }

  // Tensors, then steps, then updates.
  void TakeShare() {
    const size_t count = entries_.size() + steps_.size() + updates_.size();
    std::vector<int> parts(count, share_.part);
    if (share_.of > 1) parts = DealOut(Sizes(), share_.of);
    for (size_t i = 0; i < count; ++i) {
      if (parts[i] != share_.part) continue;
      if (i < entries_.size()) {
        own_entries_.push_back(i);
      } else if (i < entries_.size() + steps_.size()) {
        own_steps_.push_back(i - entries_.size());
      } else {
        own_updates_.push_back(i - entries_.size() - steps_.size());
      }
    }
  }

  std::vector<int64_t> Sizes() const {
    std::vector<int64_t> sizes;
    for (const TensorEntry* entry : entries_)
      sizes.push_back(BytesToRead(*entry));
    for (const StepOfParameter& step : steps_) {
      sizes.push_back(BytesOf(own_.Find(step)) +
                      (theirs_ ? BytesOf(theirs_->Find(step)) : 0));
    }
    for (const auto& [iteration, parameters] : updates_) {
      sizes.push_back(BytesOf(parameters));
    }
    return sizes;
  }

  // Roughly: what the comparisons of one tensor read, copies included.
  int64_t BytesToRead(const TensorEntry& entry) const {
    const auto& [id, pieces] = entry;
    int64_t bytes = BytesOf(&pieces);
    bytes += BytesOf(context_.candidate->FindSameValue(kReplay, id));
    const Side* reference = context_.reference;
    if (reference == nullptr) return bytes;
    bytes += BytesOf(reference->FindSameValue(kReplay, id));
    for (const LegPlan& plan : context_.plans) {
      const auto theirs =
          BytesOf(reference->FindSameValue(plan.reference_leg, id));
      bytes +=
          theirs + BytesOf(context_.candidate->Find(plan.candidate_leg, id));
      for (const Leg& leg : plan.noise_legs) {
        bytes += theirs + BytesOf(reference->FindSameValue(leg, id));
      }
    }
    return bytes;
  }

  bool HasSquare(const TensorEntry& entry) const {
    return entry.first.role == Role::kGradReduced &&
           norms_.contains(entry.first.iteration);
  }

  // Of the runs as they were.
  Result<PaddingGradient> OfPadding(const TensorFacts& facts,
                                    const TensorPieces& pieces) const {
    PaddingGradient out;
    if (!facts.padded || !IsGradient(facts.id.role)) return out;
    const TensorPieces* theirs =
        context_.reference->FindSameValue(kReal, facts.id);
    if (theirs == nullptr) return out;
    for (const LegFacts& leg : facts.legs) {
      const LegPlan& plan = context_.plans[leg.plan];
      if (!leg.usable || plan.candidate_leg != kReal) continue;
      const ErrorStats& common = leg.candidate.total;
      TTRACE_ASSIGN_OR_RETURN(out.candidate,
                              GradientOfPadding(pieces, common.sum_sq_cand()));
      TTRACE_ASSIGN_OR_RETURN(out.reference,
                              GradientOfPadding(*theirs, common.sum_sq_ref));
    }
    return out;
  }

  Status MeasureTensors(Measurements* out) {
    const TensorMeasurer measurer(context_.reference, *context_.candidate,
                                  context_.plans, context_.rows);
    out->facts.resize(own_entries_.size());
    std::vector<GradientSquare> squares(own_entries_.size());
    std::atomic<int64_t> all_read = 0;
    TTRACE_RETURN_IF_ERROR(
        ForEach(context_.threads, own_entries_.size(), [&](size_t i) -> Status {
          const TensorEntry& entry = *entries_[own_entries_[i]];
          const auto& [id, pieces] = entry;
          std::atomic<int64_t> read = 0;
          TTRACE_ASSIGN_OR_RETURN(TensorFacts facts,
                                  measurer.Measure(id, pieces, &read));
          all_read += read;
          CountBytes(read);
          ForgetPlaces(&facts);
          facts.order = static_cast<int64_t>(own_entries_[i]);
          facts.batch_unknown = context_.batch.unknown.contains(id);
          facts.padded = context_.batch.padded.contains(id);
          facts.listed = context_.batch.listed.contains(id);
          TTRACE_ASSIGN_OR_RETURN(facts.padding_gradient,
                                  OfPadding(facts, pieces));
          out->facts.Set(i, facts);
          if (HasSquare(entry)) {
            TTRACE_ASSIGN_OR_RETURN(squares[i], SquareOf(pieces));
          }
          if (context_.progress != nullptr) ++context_.progress->tensors;
          CountWork(own_entries_[i]);
          return Done{};
        }));
    for (size_t i = 0; i < own_entries_.size(); ++i) {
      const TensorEntry& entry = *entries_[own_entries_[i]];
      if (HasSquare(entry)) {
        out->squares.emplace(entry.first, std::move(squares[i]));
      }
    }
    out->bytes_compared += all_read;
    return Done{};
  }

  // Nothing where bytes are damaged: that is said where their tensor is judged.
  static Status Replay(const StepCatalog& catalog, const StoredReplays& stored,
                       const StepOfParameter& step, std::atomic<int64_t>* bytes,
                       std::optional<ReplayedStep>* out) {
    int64_t read = 0;
    auto replayed = ReplayStep(catalog, stored, step, &read);
    if (!replayed.ok() && replayed.error().code() != ErrorCode::kCorrupt) {
      return replayed.error();
    }
    if (replayed.ok()) *out = *std::move(replayed);
    *bytes += read;
    return Done{};
  }

  Status ReplaySteps(Measurements* out) {
    using Steps = std::vector<std::optional<ReplayedStep>>;
    Steps own(own_steps_.size());
    Steps theirs(own_steps_.size());
    std::atomic<int64_t> read = 0;
    Status status =
        ForEach(context_.threads, own_steps_.size(), [&](size_t i) -> Status {
          const StepOfParameter& step = steps_[own_steps_[i]];
          CountWork(StepPlace(own_steps_[i]));
          TTRACE_RETURN_IF_ERROR(Replay(own_, stored_, step, &read, &own[i]));
          // Of a step that is what it should be the reference's says nothing.
          if (!own[i] || !own[i]->out() || !theirs_ ||
              !theirs_->steps().contains(step)) {
            return Done{};
          }
          return Replay(*theirs_, {}, step, &read, &theirs[i]);
        });
    if (!status.ok()) return status;
    for (size_t i = 0; i < own_steps_.size(); ++i) {
      const StepOfParameter& step = steps_[own_steps_[i]];
      if (own[i]) out->steps.emplace(step, *std::move(own[i]));
      if (theirs[i]) out->reference_steps.emplace(step, *std::move(theirs[i]));
    }
    out->bytes_compared += read;
    return Done{};
  }

  Status CompareUpdates(Measurements* out) {
    std::vector<char> differ(own_updates_.size());
    TTRACE_RETURN_IF_ERROR(
        ForEach(context_.threads, own_updates_.size(), [&](size_t i) -> Status {
          TTRACE_ASSIGN_OR_RETURN(differ[i],
                                  AnyDiffers(updates_[own_updates_[i]].second));
          CountWork(UpdatePlace(own_updates_[i]));
          return Done{};
        }));
    for (size_t i = 0; i < own_updates_.size(); ++i) {
      if (differ[i] != 0) {
        out->unequal_updates.insert(updates_[own_updates_[i]].first);
      }
    }
    return Done{};
  }

  const RunContext& context_;
  const Share share_;
  std::vector<const TensorEntry*> entries_;
  StepCatalog own_;
  const StoredReplays stored_;  // of the candidate
  std::optional<StepCatalog> theirs_;
  std::vector<StepOfParameter> steps_;
  std::vector<std::pair<int, UpdatedParameters>> updates_;
  std::set<int> norms_;
  // Of the share.
  std::vector<size_t> own_entries_;
  std::vector<size_t> own_steps_;
  std::vector<size_t> own_updates_;
  std::vector<int64_t> sizes_;  // Sizes(), if somebody looks
};

// A record that several shares met has one error; the least of texts, so that
// no order matters.
void Unite(const DamagedNumbers& more, DamagedNumbers* into) {
  for (const auto& [number, text] : more) {
    const auto [found, is_new] = into->try_emplace(number, text);
    if (!is_new) found->second = std::min(found->second, text);
  }
}

}  // namespace

std::vector<const TensorEntry*> InOrder(const RunContext& context) {
  const ExecutionKeys keys(context.candidate->real());
  std::vector<Ordered> order;
  for (const TensorEntry& entry : context.candidate->real()) {
    if (!context.Judges(entry.first.iteration)) continue;
    ExecutionKey key = keys.Of(entry.first, entry.second);
    // Gradients are recorded together; what tells their order is the order in
    // which they are reduced.
    const int64_t index =
        context.candidate->facts().ReductionIndex(entry.first.fqn);
    if (index >= 0 && IsParameterGradient(entry.first.role)) {
      key.sequence = index;
    }
    order.emplace_back(key, &entry.first);
  }
  std::sort(order.begin(), order.end(), [](const Ordered& a, const Ordered& b) {
    return std::tie(a.first, *a.second) < std::tie(b.first, *b.second);
  });
  const Side* reference = context.reference;
  if (reference != nullptr && StagesOf(*context.candidate) > 1 &&
      StagesOf(*reference) == 1) {
    const ExecutionKeys of_reference(reference->real());
    FollowReference(
        [&](const TensorId& id) {
          const auto found = reference->real().find(id);
          return found == reference->real().end()
                     ? -1
                     : of_reference.Of(id, found->second).sequence;
        },
        &order);
  }
  std::vector<const TensorEntry*> out;
  out.reserve(order.size());
  for (const auto& [key, id] : order) {
    out.push_back(&*context.candidate->real().find(*id));
  }
  return out;
}

Result<Measurements> MeasureRun(const RunContext& context, const Share& share) {
  return Work(context, share).Measure();
}

Result<Measurements> JoinShares(const RunContext& context,
                                std::vector<Measurements> shares) {
  Measurements out;
  for (Measurements& share : shares) {
    out.facts.Append(std::move(share.facts));
    out.squares.merge(share.squares);
    out.steps.merge(share.steps);
    out.reference_steps.merge(share.reference_steps);
    out.unequal_updates.merge(share.unequal_updates);
    Unite(share.damage, &out.damage);
    Unite(share.reference_damage, &out.reference_damage);
    out.bytes_compared += share.bytes_compared;
  }
  out.facts.Sort();
  if (!Work(context, Share{}).IsOf(out)) {
    return Error(ErrorCode::kCorrupt,
                 "together the parts do not hold what these traces do");
  }
  return out;
}

}  // namespace ttrace
