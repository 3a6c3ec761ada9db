#include "src/check/diagnostician.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "src/diagnose/diagnose.h"
#include "src/diagnose/find_pattern.h"
#include "src/measure/exact_values.h"
#include "src/step/hyperparameters.h"

namespace ttrace {
namespace {

ReductionEvidence EvidenceOfReductions(const Side& candidate) {
  ReductionEvidence out;
  out.mesh = &candidate.trace().mesh();
  for (const RankTrace& rank : candidate.trace().ranks()) {
    out.coordinates[rank.meta.rank] =
        candidate.trace().coordinate(rank.meta.rank);
  }
  for (int grid = 1; grid < candidate.trace().grid_count(); ++grid) {
    RankGrid& view = out.views.emplace_back();
    view.mesh = &candidate.trace().mesh(grid);
    for (const RankTrace& rank : candidate.trace().ranks()) {
      view.coordinates[rank.meta.rank] =
          candidate.trace().coordinate(rank.meta.rank, grid);
    }
  }
  out.tensors = &candidate.real();
  out.collectives = &candidate.facts().collectives;
  out.attributes = &candidate.facts().attributes;
  return out;
}

// One that has a bound, of summaries that do not tell on which side of it the
// tensor is; null: none.
const LegJudgement* UncertainLeg(const TensorJudgement& t) {
  const auto found =
      std::find_if(t.legs.begin(), t.legs.end(),
                   [](const LegJudgement& leg) { return leg.uncertain; });
  return found == t.legs.end() ? nullptr : &*found;
}

// The leg that convicts. Where only copies do, an uncertain one: samples of the
// summaries may tell how they are wrong.
const LegJudgement* LookedAt(const TensorJudgement& t) {
  const LegJudgement* convicting = t.convicting();
  return convicting != nullptr ? convicting : UncertainLeg(t);
}

}  // namespace

Diagnostician::Diagnostician(const Side* reference, const Side& candidate,
                             const std::vector<LegPlan>& plans,
                             const RowAlignment& rows,
                             const std::vector<TensorJudgement>& tensors,
                             const ReplayedSteps& steps,
                             const Hyperparameters& settings)
    : reference_(reference),
      candidate_(candidate),
      plans_(plans),
      rows_(rows),
      steps_(steps),
      reductions_(EvidenceOfReductions(candidate)) {
  for (const TensorJudgement& t : tensors) {
    by_id_[t.id] = &t;
    if (t.diverged()) affected_[{t.id.role, t.id.iteration}].push_back(&t);
    if (t.id.role == Role::kOutput &&
        t.verdict == TensorVerdict::kNotCheckable && UncertainLeg(t)) {
      unknown_outputs_.insert(t.id.iteration);
    }
    // What an iteration lacks that was cut short may have been to come.
    if (t.verdict == TensorVerdict::kUnmatched && !t.excused &&
        (candidate_.Completed(t.id.iteration) ||
         candidate_.Find(kReal, t.id) != nullptr)) {
      unmatched_.push_back(&t);
    }
  }
  std::set<double> decays;
  for (const auto& [step, values] : settings.steps) {
    const auto decay = values.find("weight_decay");
    if (decay == values.end()) continue;
    for (const auto& [value, ranks] : decay->second) {
      if (value.numbers.size() == 1) decays.insert(value.numbers.front());
    }
  }
  weight_decays_.assign(decays.begin(), decays.end());
  micro_batches_ = candidate.MicroBatchesPerRank();
  for (const auto& [id, pieces] : candidate.real()) {
    const Record& first = pieces.pieces.front();
    if (!id.fqn.empty() || id.role != Role::kInput || !first.rows()) continue;
    const Shape shape = first.layout().global_shape();
    global_batch_ = first.rows()->global;
    // Token ids are [batch, sequence].
    if (shape.size() == 2 && first.rows()->dim == 0 &&
        !Info(first.dtype()).floating) {
      sequence_length_ = shape[1];
    }
  }
}

const TensorPieces* Diagnostician::WithStandIns(const TensorPieces* pieces,
                                                StandIns* made) const {
  if (reference_ == nullptr) return pieces;
  auto& trace = stand_ins_[pieces->trace];
  if (trace == nullptr) {
    trace = std::make_unique<StandInTrace>(*pieces->trace, *reference_);
  }
  const auto [found, is_new] = made->try_emplace(pieces, *pieces);
  found->second.trace = trace.get();
  return &found->second;
}

void Diagnostician::CompareParts(const TensorId& id, Evidence* evidence) const {
  const auto [found, is_new] = parts_.try_emplace(id);
  Parts& parts = found->second;
  if (is_new) {
    ++comparisons_;
    auto compared = CompareTensor(*evidence->reference, *evidence->candidate,
                                  evidence->compare);
    if (compared.ok()) {
      parts = {std::move(compared->instances), std::move(compared->regions)};
    }
  }
  evidence->instances = parts.instances;
  evidence->regions = parts.regions;
}

Evidence Diagnostician::Gather(const Culprit& culprit) const {
  const TensorJudgement* t = by_id_.at(culprit.tensor);
  Evidence evidence;
  evidence.culprit = &culprit;
  evidence.judgement = t;
  evidence.leg = LookedAt(*t);
  Leg ref_leg = kReal;
  Leg cand_leg = kReal;
  for (const LegPlan& plan : plans_) {
    if (evidence.leg != nullptr && plan.name == evidence.leg->leg) {
      ref_leg = plan.reference_leg;
      cand_leg = plan.candidate_leg;
    }
  }
  // State that only the real leg holds (parameters) is found there.
  evidence.find_reference = [this, ref_leg](const TensorId& id) {
    const TensorPieces* found = reference_ == nullptr
                                    ? nullptr
                                    : reference_->FindSameValue(ref_leg, id);
    return found != nullptr || reference_ == nullptr
               ? found
               : reference_->FindSameValue(kReal, id);
  };
  evidence.find_candidate =
      [this, cand_leg, culprit = t->id,
       stand_ins = std::make_shared<StandIns>()](const TensorId& id) {
        const TensorPieces* found = candidate_.Find(cand_leg, id);
        if (found == nullptr) found = candidate_.Find(kReal, id);
        // What a step left is not close to the reference by its being right.
        if (found == nullptr || IsAfterStep(id.role)) return found;
        // A culprit of which no piece is out of bounds by itself: the
        // reference's values would say that it is right.
        const ComparedPieces compared = PiecesComparedInPlace(*found);
        const bool stand_in = id == culprit ? compared == ComparedPieces::kSome
                                            : compared != ComparedPieces::kNone;
        return stand_in ? WithStandIns(found, stand_ins.get()) : found;
      };
  evidence.visit_reference = [this, ref_leg](const TensorVisit& visit) {
    if (reference_ == nullptr) return;
    for (const auto& [id, pieces] : reference_->real()) {
      const TensorPieces* found = reference_->Find(ref_leg, id);
      visit(id, found != nullptr ? *found : pieces);
    }
  };
  evidence.reference = evidence.find_reference(t->id);
  evidence.candidate = evidence.find_candidate(t->id);
  if (evidence.candidate != nullptr) {
    evidence.compare = rows_.OptionsFor(candidate_, t->id, *evidence.candidate);
  }
  if (evidence.leg != nullptr && evidence.reference != nullptr &&
      evidence.candidate != nullptr) {
    CompareParts(t->id, &evidence);
  }
  // The grid whose names the tensor uses: factors are its sizes.
  evidence.candidate_mesh = &candidate_.trace().mesh(
      evidence.candidate != nullptr ? evidence.candidate->pieces.front().grid()
                                    : 0);
  evidence.micro_batches = micro_batches_;
  evidence.global_batch = global_batch_;
  evidence.sequence_length = sequence_length_;
  evidence.outputs_are_known = !unknown_outputs_.contains(t->id.iteration);
  const auto found =
      candidate_.facts().state_changes.gradients.find(t->id.iteration);
  evidence.gradients_were_kept =
      found != candidate_.facts().state_changes.gradients.end() &&
      !found->second.ranks.empty();
  // What a reduction leaves is as wrong as what it was given: only the latter
  // is the place.
  const EarlyReduction* early = candidate_.facts().early_reductions.Find(
      t->id.iteration, t->id.fqn, t->ranks);
  if (early != nullptr &&
      t->id.role ==
          (early->local_is_whole ? Role::kGradReduced : Role::kGradLocal)) {
    evidence.reduced_early = early;
  }
  if (t->id.role == Role::kGradReduced && reference_ != nullptr &&
      reference_->facts().cleared_gradients.Find(t->id.iteration, t->id.fqn) ==
          nullptr) {
    evidence.cleared =
        candidate_.facts().cleared_gradients.Find(t->id.iteration, t->id.fqn);
  }
  evidence.sums_were_made = reductions_.SumsWereMade(culprit);
  evidence.wrong_group = reductions_.WrongGroup(culprit);
  evidence.attributes = candidate_.facts().attributes;
  if (reference_ != nullptr) {
    evidence.reference_attributes = reference_->facts().attributes;
  }
  const auto affected = affected_.find({t->id.role, t->id.iteration});
  if (affected != affected_.end()) evidence.affected = affected->second;
  evidence.unmatched = unmatched_;
  evidence.weight_decays = weight_decays_;
  if (t->step_differs()) {
    const auto step = steps_.find({t->id.iteration, t->id.fqn});
    if (step != steps_.end()) evidence.step = &step->second;
  }
  return evidence;
}

void Diagnostician::ExplainByGradient(Culprit* loss) const {
  const auto found =
      affected_.find({Role::kGradOutput, loss->tensor.iteration});
  if (found == affected_.end()) return;
  Culprit sent = *loss;
  sent.tensor = found->second.front()->id;
  if (auto diagnosis = DiagnoseLoss(Gather(sent))) {
    loss->classes.push_back(*std::move(diagnosis));
  }
}

void Diagnostician::Explain(Culprit* culprit) const {
  const TensorJudgement& t = *by_id_.at(culprit->tensor);
  culprit->hints = reductions_.For(*culprit);
  const Evidence evidence = Gather(*culprit);
  culprit->classes = Diagnose(evidence);
  if (t.id.role == Role::kLoss && culprit->classes.empty()) {
    ExplainByGradient(culprit);
  }
  if (evidence.step != nullptr) {
    culprit->hints.push_back(StepHint(*evidence.step));
  }
  if (culprit->stage == Stage::kCompute &&
      culprit->Has(BugClass::kMissingPartialSum) &&
      (t.replicas_differ || evidence.reduced_early != nullptr)) {
    culprit->stage = Stage::kCommunication;
  }
  // The loop does it, and no reduction.
  if (evidence.cleared != nullptr) culprit->stage = Stage::kCompute;
}

void Diagnostician::Picture(Culprit* culprit) const {
  if (by_id_.contains(culprit->tensor)) {
    culprit->pattern = FindPattern(Gather(*culprit));
  }
}

}  // namespace ttrace
