#include "src/step/rank_replay.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/compare/held_values.h"
#include "src/numeric/round_to.h"

namespace ttrace {
namespace {

constexpr int64_t kTile = 1 << 13;  // elements in memory at a time
// Of a sample: enough to tell hypotheses apart, few enough to keep for each
// parameter.
constexpr size_t kWrong = 768;
constexpr size_t kRight = 256;

using Gap = StepGap::Kind;

constexpr size_t At(StepField field) { return static_cast<size_t>(field); }

std::optional<Record> PieceOf(const TensorPieces* pieces, int rank) {
  if (pieces == nullptr) return std::nullopt;
  for (const Record& record : pieces->pieces) {
    if (record.rank() == rank) return record;
  }
  return std::nullopt;
}

// The one element that `rank` holds; nothing if it has no such tensor.
Result<std::optional<double>> ReadOne(const TensorPieces* pieces, int rank) {
  const std::optional<Record> record = PieceOf(pieces, rank);
  if (!record || record->layout().local_count() != 1) {
    return std::optional<double>();
  }
  TTRACE_ASSIGN_OR_RETURN(const HeldValues held,
                          ReadHeld(*pieces, rank, record->layout()));
  if (held.missing > 0) return std::optional<double>();
  return std::optional<double>(held.values.front());
}

// The step of one parameter on one rank.
class RankStep {
 public:
  RankStep(const StepCatalog& catalog, const StepTensors& tensors, int rank,
           RankReplay* out)
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
    // What an algorithm that is not known does without one, is not known.
    skipped_ |= rule_ && catalog.HasNoGradient(rank, tensors.step);
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
               !tensors_.Has(BeforeOf(quantity)) ||
               !Readable(ResultOf(quantity)) || !Readable(BeforeOf(quantity));
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
    std::fill(read_.begin(), read_.end(), false);
    wrong_.assign(count, 0);
    bool whole = true;
    for (const StepQuantity quantity : quantities_) {
      TTRACE_ASSIGN_OR_RETURN(const bool all,
                              JudgeQuantity(quantity, part, count));
      whole &= all || quantity != StepQuantity::kParameter;
    }
    out_.judged = true;
    const bool any = std::find(wrong_.begin(), wrong_.end(), 1) != wrong_.end();
    if (any && !out_.sample) {
      for (size_t f = 0; f < kStepFields; ++f) {
        const auto field = static_cast<StepField>(f);
        if (tensors_.Has(field) && !Readable(field)) continue;
        TTRACE_RETURN_IF_ERROR(Read(field, part));
      }
      Sample();
    }
    return whole && JudgesParameter();
  }

  bool JudgesParameter() const {
    return std::find(quantities_.begin(), quantities_.end(),
                     StepQuantity::kParameter) != quantities_.end();
  }

 private:
  void AddGap(Gap kind, const std::string& name) {
    out_.gaps.insert({kind, name});
  }

  // Values were kept of all that the step of this rank is made of.
  bool Readable(StepField field) const {
    const StepTensor& tensor = tensors_.At(field);
    return std::all_of(
        tensor.pieces->pieces.begin(), tensor.pieces->pieces.end(),
        [&](const Record& record) {
          return (record.rank() != rank_ && !tensor.of_reference) ||
                 tensor.pieces->trace->GivesValues(record);
        });
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
    Add(StepQuantity::kStepCount, *after, {expected, 0},
        StepHeadroom(*after, {expected, 0}));
    out_.judged = true;
    return Done{};
  }

  Status ReadSetting() {
    const auto dtype = [&](StepField field, DType otherwise) {
      const auto record = PieceOf(tensors_.At(field).pieces, rank_);
      return !record || !Info(record->dtype()).floating ? otherwise
                                                        : record->dtype();
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
    if (const auto gradient =
            PieceOf(tensors_.At(StepField::kGradient).pieces, rank_)) {
      setting_.gradient_scale = gradient->scale().value();
    }
    setting_.first_step = count_ == 1 && !tensors_.Has(StepField::kMomentum);
    setting_.count = count_.value_or(1);
    if (!rule_->clip_norm) return Done{};
    TTRACE_ASSIGN_OR_RETURN(const std::optional<double> norm,
                            ReadOne(tensors_.norm, rank_));
    clip_known_ = norm && std::isfinite(*norm);
    if (!clip_known_) return Done{};
    // Limit and norm are of what gradients mean. Those that were clipped may
    // have had the scale of the loss still.
    const auto piece = PieceOf(tensors_.norm, rank_);
    const double scale = piece->scale().value();
    norm_ = *norm * scale;
    SetClip(*rule_->clip_norm / scale, *norm, piece->dtype(), &setting_);
    return Done{};
  }

  bool CanJudge(StepQuantity quantity) {
    if (!tensors_.Has(ResultOf(quantity))) {
      if (quantity == StepQuantity::kParameter) {
        AddGap(Gap::kNotRecorded, NameOf(ResultOf(quantity)));
      }
      return false;
    }
    if (!Readable(ResultOf(quantity))) {
      AddGap(Gap::kNotRecorded, NameOf(ResultOf(quantity)));
      return false;
    }
    for (const StepField field : formula_->InputsOf(quantity)) {
      if (tensors_.Has(field) ? !Readable(field) : !IsNew(field)) {
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

  // Into fields_, once a part.
  Status Read(StepField field, const Layout& part) {
    if (read_[At(field)]) return Done{};
    read_[At(field)] = true;
    HeldValues& out = fields_[At(field)];
    out.values.clear();
    out.held.clear();
    out.missing = 0;
    const StepTensor& tensor = tensors_.At(field);
    if (tensor.pieces == nullptr) {
      if (!IsNew(field)) return Done{};
      out.values.assign(static_cast<size_t>(part.local_count()), 0.0);
      out.held.assign(out.values.size(), 1);
      return Done{};
    }
    TTRACE_RETURN_IF_ERROR(reader_.Read(
        *tensor.pieces, tensor.of_reference ? kAnyRank : rank_, part, &out));
    if (tensor.of_reference) {
      const StepField after = field == StepField::kCopy
                                  ? StepField::kCopyAfter
                                  : StepField::kParameterAfter;
      const auto own = PieceOf(tensors_.At(after).pieces, rank_);
      if (!own) return Done{};
      for (double& value : out.values) value = RoundTo(value, own->dtype());
    }
    return Done{};
  }

  std::vector<StepField> InputsOf(StepQuantity quantity) const {
    if (skipped_) return {BeforeOf(quantity)};
    return formula_->InputsOf(quantity);
  }

  // False: the rank lacks some of what the elements are made of.
  Result<bool> JudgeQuantity(StepQuantity quantity, const Layout& part,
                             size_t count) {
    const StepField result = ResultOf(quantity);
    std::vector<StepField> fields = InputsOf(quantity);
    fields.insert(fields.begin(), result);
    bool whole = true;
    for (const StepField field : fields) {
      TTRACE_RETURN_IF_ERROR(Read(field, part));
      const HeldValues& held = fields_[At(field)];
      whole &= held.missing == 0 && held.values.size() == count;
    }
    values_.resize(count);
    bounds_.resize(count);
    headrooms_.resize(count);
    if (skipped_) {
      std::fill(bounds_.begin(), bounds_.end(), 0.0);
      const std::vector<double>& before = fields_[At(fields.back())].values;
      if (before.empty()) return NotHeld(fields.back());
      values_ = before;
    } else {
      StepColumns columns = {};
      for (const StepField field : fields) {
        const std::vector<double>& values = fields_[At(field)].values;
        if (values.empty()) return NotHeld(field);
        columns[At(field)] = values.data();
      }
      ExpectAfterStep(formula_->constants(), quantity, columns, count,
                      values_.data(), bounds_.data());
    }
    const std::vector<double>& recorded = fields_[At(result)].values;
    if (recorded.empty()) return NotHeld(result);
    HeadroomsOfStep(recorded.data(), values_.data(), bounds_.data(), count,
                    headrooms_.data());
    Tally(quantity, fields, whole);
    return whole;
  }

  // Adds up the headrooms of those elements that the rank has `fields` of:
  // all, if it has them whole.
  void Tally(StepQuantity quantity, const std::vector<StepField>& fields,
             bool whole) {
    const std::vector<double>& recorded =
        fields_[At(ResultOf(quantity))].values;
    StepErrors& errors = out_.errors[static_cast<size_t>(quantity)];
    for (size_t i = 0; i < recorded.size(); ++i) {
      // Nearly all elements are held, and closer to what is expected than one
      // before them.
      if (whole && headrooms_[i] <= std::min(errors.headroom, 1.0) &&
          errors.judged > 0) {
        ++errors.judged;
        continue;
      }
      if (!whole && !HoldsAll(fields, i)) continue;
      if (Add(quantity, recorded[i], {values_[i], bounds_[i]}, headrooms_[i])) {
        wrong_[i] = 1;
      }
    }
  }

  bool NotHeld(StepField field) {
    AddGap(Gap::kNotHeld, NameOf(field));
    return false;
  }

  bool HoldsAll(const std::vector<StepField>& fields, size_t i) {
    for (const StepField field : fields) {
      if (fields_[At(field)].held[i] == 0) return NotHeld(field);
    }
    return true;
  }

  bool Add(StepQuantity quantity, double recorded,
           const ExpectedValue& expected, double headroom) {
    StepErrors& errors = out_.errors[static_cast<size_t>(quantity)];
    ++errors.judged;
    if (headroom > errors.headroom || errors.judged == 1) {
      errors.headroom = headroom;
      errors.error = std::fabs(recorded - expected.value);
      errors.bound = expected.bound;
    }
    if (!(headroom > 1)) return false;
    ++errors.out;
    return true;
  }

  // Of what was read.
  void Sample() {
    if (!rule_) return;
    StepSample sample;
    sample.rank = rank_;
    sample.rule = *rule_;
    sample.setting = setting_;
    sample.quantities = quantities_;
    sample.norm = norm_;
    for (size_t f = 0; f < kStepFields; ++f) {
      sample.known[f] = !fields_[f].values.empty() && fields_[f].missing == 0;
    }
    const auto take = [&](char wrong, size_t most) {
      const auto all =
          static_cast<size_t>(std::count(wrong_.begin(), wrong_.end(), wrong));
      const size_t step = std::max<size_t>(1, all / most);
      size_t n = 0;
      for (size_t i = 0; i < wrong_.size() && n / step < most; ++i) {
        if (wrong_[i] != wrong || n++ % step != 0) continue;
        StepElement element = {};
        for (size_t f = 0; f < kStepFields; ++f) {
          if (sample.known[f]) element[f] = fields_[f].values[i];
        }
        sample.elements.push_back(element);
      }
    };
    take(1, kWrong);
    take(0, kRight);
    out_.sample = std::move(sample);
  }

  const StepTensors& tensors_;
  int rank_;
  bool skipped_;
  RankReplay& out_;
  std::optional<StepRule> rule_;
  StepGap gap_;
  std::optional<double> count_;
  double norm_ = 0;
  bool clip_known_ = true;
  StepSetting setting_;
  std::optional<StepFormula> formula_;
  std::vector<StepQuantity> quantities_;

  // Of the part at hand.
  HeldReader reader_;
  std::array<HeldValues, kStepFields> fields_;
  std::array<bool, kStepFields> read_ = {};
  std::vector<double> values_;
  std::vector<double> bounds_;
  std::vector<double> headrooms_;
  std::vector<char> wrong_;
};

}  // namespace

std::vector<Record> PiecesOfStep(const StepTensors& tensors, int rank) {
  const TensorPieces* anchor = tensors.At(StepField::kParameterAfter).pieces;
  for (const StepField field :
       {StepField::kMomentumAfter, StepField::kFirstAfter}) {
    if (PieceOf(tensors.At(field).pieces, rank)) {
      anchor = tensors.At(field).pieces;
    }
  }
  std::vector<Record> out;
  if (anchor == nullptr) return out;
  for (const Record& piece : anchor->pieces) {
    if (piece.rank() == rank) out.push_back(piece);
  }
  return out;
}

Result<RankReplay> ReplayOnRank(const StepCatalog& catalog,
                                const StepTensors& tensors, int rank) {
  RankReplay out;
  out.norms = tensors.several_norms;
  RankStep step(catalog, tensors, rank, &out);
  TTRACE_ASSIGN_OR_RETURN(const bool any, step.Prepare());
  if (!any) return out;
  for (const Record& piece : PiecesOfStep(tensors, rank)) {
    bool whole = true;
    for (const Layout& part : CutLayout(piece.layout(), kTile)) {
      TTRACE_ASSIGN_OR_RETURN(const bool all, step.Judge(part));
      whole &= all;
    }
    out.whole.push_back(whole ? 1 : 0);
  }
  return out;
}

}  // namespace ttrace
