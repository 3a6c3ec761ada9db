#include "src/step/replayed_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/compare/layout_overlap.h"

namespace ttrace {
namespace {

// Ranks that hold something of the parameter after the step.
std::set<int> RanksOf(const StepTensors& tensors) {
  std::set<int> out;
  for (const StepField field :
       {StepField::kParameterAfter, StepField::kFirstAfter,
        StepField::kMomentumAfter}) {
    if (!tensors.Has(field)) continue;
    for (const Record& record : tensors.At(field).pieces->pieces) {
      out.insert(record.rank());
    }
  }
  return out;
}

void AddDistinct(const Layout& layout, std::vector<const Layout*>* out) {
  const bool known = std::any_of(out->begin(), out->end(),
                                 [&](const Layout* l) { return *l == layout; });
  if (!known) out->push_back(&layout);
}

bool Covers(const std::vector<const Layout*>& judged,
            const TensorPieces* parameter) {
  if (parameter == nullptr || judged.empty()) return false;
  std::vector<const Layout*> held;
  for (const Record& record : parameter->pieces) {
    AddDistinct(record.layout(), &held);
  }
  const Shape shape = parameter->global_shape();
  const bool alike = std::all_of(
      judged.begin(), judged.end(),
      [&](const Layout* layout) { return layout->global_shape() == shape; });
  return alike && MeasureOverlap(held, judged).only_a == 0;
}

// What a rank found, beside what those before it did.
void Add(const RankReplay& one, int rank, ReplayedStep* out) {
  for (size_t q = 0; q < kStepQuantities; ++q) {
    const StepErrors& found = one.errors[q];
    StepErrors& all = out->errors[q];
    if (found.judged == 0) continue;
    if (found.headroom > all.headroom || all.judged == 0) {
      all.headroom = found.headroom;
      all.error = found.error;
      all.bound = found.bound;
    }
    all.judged += found.judged;
    all.out += found.out;
    if (found.out > 0) all.ranks.insert(rank);
  }
  for (const StepGap& gap : one.gaps) out->gaps[gap].insert(rank);
  if (one.judged) out->ranks.insert(rank);
  out->skipped |= one.skipped;
  if (!out->sample) out->sample = one.sample;
}

// Whether what a rank found is of this trace, as far as that can be told; that
// several norms may have clipped is known of all ranks together only.
bool IsOf(const RankReplay& stored, const StepTensors& tensors, size_t pieces) {
  return (stored.whole.empty() || stored.whole.size() == pieces) &&
         stored.norms == tensors.several_norms;
}

}  // namespace

bool ReplayedStep::out() const { return Worst().has_value(); }

std::optional<StepQuantity> ReplayedStep::Worst() const {
  std::optional<StepQuantity> worst;
  for (size_t q = 0; q < kStepQuantities; ++q) {
    if (errors[q].out == 0) continue;
    if (!worst || errors[q].headroom > Of(*worst).headroom) {
      worst = static_cast<StepQuantity>(q);
    }
  }
  return worst;
}

Result<ReplayedStep> ReplayStep(const StepCatalog& catalog,
                                const StoredReplays& stored,
                                const StepOfParameter& step, int64_t* bytes) {
  const StepTensors tensors = catalog.Find(step);
  ReplayedStep out;
  out.step = step;
  for (size_t q = 1; q < kStepQuantities; ++q) {
    out.results[q] = tensors.At(ResultOf(static_cast<StepQuantity>(q))).id;
  }
  out.results[0] = tensors.count_after.id;
  std::vector<const Layout*> judged;
  for (const int rank : RanksOf(tensors)) {
    const std::vector<Record> pieces = PiecesOfStep(tensors, rank);
    const auto found = stored.find({step, rank});
    const bool known =
        found != stored.end() && IsOf(found->second, tensors, pieces.size());
    RankReplay made;
    if (!known) {
      TTRACE_ASSIGN_OR_RETURN(made, ReplayOnRank(catalog, tensors, rank));
    }
    const RankReplay& one = known ? found->second : made;
    Add(one, rank, &out);
    for (size_t i = 0; i < one.whole.size(); ++i) {
      *bytes +=
          pieces[i].layout().local_count() * Info(pieces[i].dtype()).itemsize;
      if (one.whole[i] != 0) AddDistinct(pieces[i].layout(), &judged);
    }
  }
  out.whole = Covers(judged, tensors.At(StepField::kParameterAfter).pieces);
  return out;
}

}  // namespace ttrace
