#include "src/measure/replayed_step.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "src/compare/held_values.h"
#include "src/compare/layout_overlap.h"
#include "src/numeric/round_to.h"

namespace ttrace {
namespace {

constexpr int64_t kTile = 1 << 14;  // elements in memory at a time
// Of a sample: enough to tell hypotheses apart, few enough to keep for each
// parameter.
constexpr size_t kWrong = 768;
constexpr size_t kRight = 256;

using Gap = StepGap::Kind;

constexpr size_t At(StepField field) { return static_cast<size_t>(field); }

const Record* PieceOf(const TensorPieces* pieces, int rank) {
  if (pieces == nullptr) return nullptr;
  for (const Record* record : pieces->pieces) {
    if (record->rank == rank) return record;
  }
  return nullptr;
}

// The one element that `rank` holds; nothing if it has no such tensor.
Result<std::optional<double>> ReadOne(const TensorPieces* pieces, int rank) {
  const Record* record = PieceOf(pieces, rank);
  if (record == nullptr || record->layout.local_count() != 1) {
    return std::optional<double>();
  }
  TTRACE_ASSIGN_OR_RETURN(const HeldValues held,
                          ReadHeld(*pieces, rank, record->layout));
  if (held.missing > 0) return std::optional<double>();
  return std::optional<double>(held.values.front());
}

// The step of one parameter on one rank.
class RankStep {
 public:
  RankStep(const StepCatalog& catalog, const StepTensors& tensors, int rank,
           ReplayedStep* out)
      : tensors_(tensors),
        rank_(rank),
        skipped_(catalog.Skipped(rank, tensors.step.iteration)),
        out_(*out) {
    const auto& steps = catalog.hyperparameters().steps;
    const auto noted = steps.find(tensors.step);
    if (noted != steps.end()) {
      StepRuleReading reading = ReadStepRule(noted->second, rank);
      rule_ = reading.rule;
      gap_ = std::move(reading.gap);
    }
  }

  // False: nothing of this rank can be judged.
  Result<bool> Prepare() {
    if (skipped_) {
      out_.skipped = true;
      quantities_ = {StepQuantity::kFirst,     StepQuantity::kSecond,
                     StepQuantity::kLargest,   StepQuantity::kMomentum,
                     StepQuantity::kParameter, StepQuantity::kCopy};
      std::erase_if(quantities_, [&](StepQuantity quantity) {
        return !tensors_.Has(ResultOf(quantity)) ||
               !tensors_.Has(BeforeOf(quantity));
      });
      TTRACE_RETURN_IF_ERROR(JudgeCount());
      return !quantities_.empty();
    }
    if (!rule_) {
      AddGap(gap_.kind, gap_.name);
      return false;
    }
    TTRACE_RETURN_IF_ERROR(JudgeCount());
    TTRACE_RETURN_IF_ERROR(ReadSetting());
    formula_.emplace(*rule_, setting_);
    for (const StepQuantity quantity : formula_->quantities()) {
      if (CanJudge(quantity)) quantities_.push_back(quantity);
    }
    return !quantities_.empty();
  }

  // Judges the elements of `part`. False: the rank lacks some of what they are
  // made of.
  Result<bool> Judge(const Layout& part) {
    const auto count = static_cast<size_t>(part.local_count());
    std::array<HeldValues, kStepFields> fields;
    for (size_t f = 0; f < kStepFields; ++f) {
      if (f == At(StepField::kOldGradient)) continue;
      TTRACE_RETURN_IF_ERROR(Read(f, part, &fields[f]));
    }
    bool whole = true;
    std::vector<size_t> wrong;
    std::vector<size_t> right;
    StepElement element = {};
    for (size_t i = 0; i < count; ++i) {
      for (size_t f = 0; f < kStepFields; ++f) {
        element[f] = fields[f].values.empty() ? 0 : fields[f].values[i];
      }
      bool out = false;
      for (const StepQuantity quantity : quantities_) {
        if (const auto lacking = Lacks(quantity, fields, i)) {
          AddGap(Gap::kNotHeld, NameOf(*lacking));
          whole &= quantity != StepQuantity::kParameter;
          continue;
        }
        out |= JudgeElement(quantity, element);
      }
      (out ? wrong : right).push_back(i);
    }
    out_.ranks.insert(rank_);
    if (!wrong.empty() && !out_.sample) {
      TTRACE_RETURN_IF_ERROR(Read(At(StepField::kOldGradient), part,
                                  &fields[At(StepField::kOldGradient)]));
      Sample(fields, wrong, right);
    }
    return whole && JudgesParameter();
  }

  // Whose pieces the others are gathered at.
  const TensorPieces* anchor() const {
    for (const StepField field :
         {StepField::kFirstAfter, StepField::kMomentumAfter}) {
      if (PieceOf(tensors_.At(field).pieces, rank_) != nullptr) {
        return tensors_.At(field).pieces;
      }
    }
    return tensors_.At(StepField::kParameterAfter).pieces;
  }

  bool JudgesParameter() const {
    return std::find(quantities_.begin(), quantities_.end(),
                     StepQuantity::kParameter) != quantities_.end();
  }

 private:
  void AddGap(Gap kind, const std::string& name) {
    out_.gaps[{kind, name}].insert(rank_);
  }

  // Made by the first step, and zero before it.
  bool IsNew(StepField field) const {
    const bool state =
        field == StepField::kFirst || field == StepField::kSecond ||
        field == StepField::kLargest || field == StepField::kMomentum;
    return state && !tensors_.Has(field) && count_ == 1;
  }

  Status JudgeCount() {
    TTRACE_ASSIGN_OR_RETURN(const std::optional<double> after,
                            ReadOne(tensors_.count_after.pieces, rank_));
    TTRACE_ASSIGN_OR_RETURN(const std::optional<double> before,
                            ReadOne(tensors_.count.pieces, rank_));
    count_ = after;
    if (!after || (!before && (skipped_ || *after != 1))) return Done{};
    const double expected = before.value_or(0) + (skipped_ ? 0 : 1);
    Add(StepQuantity::kStepCount, *after, {expected, 0});
    out_.ranks.insert(rank_);
    return Done{};
  }

  Status ReadSetting() {
    const auto dtype = [&](StepField field, DType otherwise) {
      const Record* record = PieceOf(tensors_.At(field).pieces, rank_);
      return record == nullptr || !Info(record->dtype).floating ? otherwise
                                                                : record->dtype;
    };
    setting_.parameter = dtype(StepField::kParameterAfter, DType::kF32);
    const DType own = setting_.parameter;
    setting_.gradient = dtype(StepField::kGradient, own);
    setting_.first = dtype(rule_->algorithm == StepAlgorithm::kAdam
                               ? StepField::kFirstAfter
                               : StepField::kMomentumAfter,
                           own);
    setting_.second = dtype(StepField::kSecondAfter, own);
    setting_.largest = dtype(StepField::kLargestAfter, own);
    setting_.copy = dtype(StepField::kCopyAfter, own);
    if (const Record* gradient =
            PieceOf(tensors_.At(StepField::kGradient).pieces, rank_)) {
      setting_.gradient_scale = gradient->scale.value();
    }
    setting_.first_step = count_ == 1 && !tensors_.Has(StepField::kMomentum);
    setting_.count = count_.value_or(1);
    if (!rule_->clip_norm) return Done{};
    TTRACE_ASSIGN_OR_RETURN(const std::optional<double> norm,
                            ReadOne(tensors_.norm, rank_));
    clip_known_ = norm && std::isfinite(*norm);
    if (!clip_known_) return Done{};
    norm_ = *norm;
    SetClip(*rule_->clip_norm, norm_, PieceOf(tensors_.norm, rank_)->dtype,
            &setting_);
    return Done{};
  }

  bool CanJudge(StepQuantity quantity) {
    if (!tensors_.Has(ResultOf(quantity))) {
      if (quantity == StepQuantity::kParameter) {
        AddGap(Gap::kNotRecorded, NameOf(ResultOf(quantity)));
      }
      return false;
    }
    for (const StepField field : formula_->InputsOf(quantity)) {
      if (!tensors_.Has(field) && !IsNew(field)) {
        AddGap(Gap::kNotRecorded, NameOf(field));
        return false;
      }
      if (field == StepField::kGradient && !clip_known_) {
        AddGap(Gap::kNotRecorded, "grad_norm");
        return false;
      }
    }
    if (quantity == StepQuantity::kParameter && !count_ &&
        rule_->algorithm == StepAlgorithm::kAdam && rule_->bias_correction) {
      AddGap(Gap::kNotRecorded, "step");
      return false;
    }
    return true;
  }

  Status Read(size_t f, const Layout& part, HeldValues* out) const {
    const auto field = static_cast<StepField>(f);
    const StepTensor& tensor = tensors_.At(field);
    if (tensor.pieces == nullptr) {
      if (!IsNew(field)) return Done{};
      out->values.assign(static_cast<size_t>(part.local_count()), 0.0);
      out->held.assign(out->values.size(), 1);
      return Done{};
    }
    TTRACE_ASSIGN_OR_RETURN(
        *out,
        ReadHeld(*tensor.pieces, tensor.of_reference ? kAnyRank : rank_, part));
    if (tensor.of_reference) {
      const StepField after = field == StepField::kCopy
                                  ? StepField::kCopyAfter
                                  : StepField::kParameterAfter;
      const Record* own = PieceOf(tensors_.At(after).pieces, rank_);
      if (own == nullptr) return Done{};
      for (double& value : out->values) value = RoundTo(value, own->dtype);
    }
    return Done{};
  }

  std::vector<StepField> InputsOf(StepQuantity quantity) const {
    if (skipped_) return {BeforeOf(quantity)};
    return formula_->InputsOf(quantity);
  }

  std::optional<StepField> Lacks(
      StepQuantity quantity, const std::array<HeldValues, kStepFields>& fields,
      size_t i) const {
    const auto has = [&](StepField field) {
      const std::vector<char>& held = fields[At(field)].held;
      return !held.empty() && held[i] != 0;
    };
    if (!has(ResultOf(quantity))) return ResultOf(quantity);
    for (const StepField field : InputsOf(quantity)) {
      if (!has(field)) return field;
    }
    return std::nullopt;
  }

  bool JudgeElement(StepQuantity quantity, const StepElement& element) {
    const double recorded = element[At(ResultOf(quantity))];
    return Add(quantity, recorded,
               skipped_ ? ExpectedValue{element[At(BeforeOf(quantity))], 0}
                        : formula_->Expect(quantity, element));
  }

  bool Add(StepQuantity quantity, double recorded,
           const ExpectedValue& expected) {
    StepErrors& errors = out_.errors[static_cast<size_t>(quantity)];
    const double headroom = StepHeadroom(recorded, expected);
    ++errors.judged;
    if (headroom > errors.headroom || errors.judged == 1) {
      errors.headroom = headroom;
      errors.error = std::fabs(recorded - expected.value);
      errors.bound = expected.bound;
    }
    if (!(headroom > 1)) return false;
    ++errors.out;
    errors.ranks.insert(rank_);
    return true;
  }

  void Sample(const std::array<HeldValues, kStepFields>& fields,
              const std::vector<size_t>& wrong,
              const std::vector<size_t>& right) {
    if (!rule_) return;
    StepSample sample;
    sample.rank = rank_;
    sample.rule = *rule_;
    sample.setting = setting_;
    sample.quantities = quantities_;
    sample.norm = norm_;
    for (size_t f = 0; f < kStepFields; ++f) {
      sample.known[f] = !fields[f].values.empty() && fields[f].missing == 0;
    }
    const auto take = [&](const std::vector<size_t>& from, size_t most) {
      const size_t step = std::max<size_t>(1, from.size() / most);
      for (size_t n = 0; n < from.size() && n / step < most; n += step) {
        StepElement element = {};
        for (size_t f = 0; f < kStepFields; ++f) {
          if (sample.known[f]) element[f] = fields[f].values[from[n]];
        }
        sample.elements.push_back(element);
      }
    };
    take(wrong, kWrong);
    take(right, kRight);
    out_.sample = std::move(sample);
  }

  const StepTensors& tensors_;
  int rank_;
  bool skipped_;
  ReplayedStep& out_;
  std::optional<StepRule> rule_;
  StepGap gap_;
  std::optional<double> count_;
  double norm_ = 0;
  bool clip_known_ = true;
  StepSetting setting_;
  std::optional<StepFormula> formula_;
  std::vector<StepQuantity> quantities_;
};

// Ranks that hold something of the parameter after the step.
std::set<int> RanksOf(const StepTensors& tensors) {
  std::set<int> out;
  for (const StepField field :
       {StepField::kParameterAfter, StepField::kFirstAfter,
        StepField::kMomentumAfter}) {
    if (!tensors.Has(field)) continue;
    for (const Record* record : tensors.At(field).pieces->pieces) {
      out.insert(record->rank);
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
  for (const Record* record : parameter->pieces) {
    AddDistinct(record->layout, &held);
  }
  const Shape shape = parameter->global_shape();
  const bool alike = std::all_of(
      judged.begin(), judged.end(),
      [&](const Layout* layout) { return layout->global_shape() == shape; });
  return alike && MeasureOverlap(held, judged).only_a == 0;
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
    RankStep one(catalog, tensors, rank, &out);
    TTRACE_ASSIGN_OR_RETURN(const bool any, one.Prepare());
    if (!any || one.anchor() == nullptr) continue;
    for (const Record* piece : one.anchor()->pieces) {
      if (piece->rank != rank) continue;
      bool whole = true;
      for (const Layout& part : CutLayout(piece->layout, kTile)) {
        TTRACE_ASSIGN_OR_RETURN(const bool all, one.Judge(part));
        whole &= all;
      }
      *bytes += piece->extent.bytes;
      if (whole) AddDistinct(piece->layout, &judged);
    }
  }
  out.whole = Covers(judged, tensors.At(StepField::kParameterAfter).pieces);
  return out;
}

}  // namespace ttrace
