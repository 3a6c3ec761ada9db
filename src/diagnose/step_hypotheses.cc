#include "src/diagnose/step_hypotheses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "src/diagnose/constants.h"

namespace ttrace {
namespace {

constexpr size_t At(StepField field) { return static_cast<size_t>(field); }

struct Hypothesis {
  BugClass bug_class = {};
  std::string words;
  double value = std::numeric_limits<double>::quiet_NaN();
  StepRule rule;
  StepSetting setting;
  // Left as they were.
  std::set<StepQuantity> kept;
  // What the step took for its inputs, and what it needs for that.
  std::function<void(StepElement*)> take = nullptr;
  std::vector<StepField> needs = {};
  bool fitted = false;  // or follows from what is itself rounded
  bool of_count = false;
};

class Trial {
 public:
  explicit Trial(const StepSample& sample) : sample_(sample) {
    Hypothesis own;
    own.rule = sample.rule;
    own.setting = sample.setting;
    for (const StepElement& element : sample.elements) {
      wrong_.push_back(
          Headroom(own, StepFormula(own.rule, own.setting), element) > 1);
    }
    wrongs_ = std::count(wrong_.begin(), wrong_.end(), true);
  }

  int64_t wrong() const { return wrongs_; }
  bool IsWrong(size_t i) const { return wrong_[i]; }

  // The mean headroom if it explains the sample, else nothing.
  std::optional<double> Explains(const Hypothesis& hypothesis) const {
    if (wrongs_ < (hypothesis.fitted ? kFewestFittedOfStep : kFewestOfStep) ||
        !Known(hypothesis)) {
      return std::nullopt;
    }
    const StepFormula formula(hypothesis.rule, hypothesis.setting);
    const double limit = hypothesis.fitted ? kFittedLimit : 1;
    int64_t explained = 0;
    int64_t still_right = 0;
    double sum = 0;
    for (size_t i = 0; i < sample_.elements.size(); ++i) {
      const double headroom =
          Headroom(hypothesis, formula, sample_.elements[i]);
      sum += std::fmin(headroom, limit);
      if (headroom > limit) continue;
      ++(wrong_[i] ? explained : still_right);
    }
    const auto all = static_cast<int64_t>(sample_.elements.size());
    const auto enough = [](int64_t part, int64_t of) {
      return static_cast<double>(part) >= kMostOfStep * static_cast<double>(of);
    };
    if (!enough(explained, wrongs_) || !enough(still_right, all - wrongs_)) {
      return std::nullopt;
    }
    return sum / static_cast<double>(all);
  }

  // The x for which `quantity` is what was recorded, where it is an affine
  // function of x: least squares in units of the bounds.
  std::optional<double> Fit(
      StepQuantity quantity,
      const std::function<Hypothesis(double)>& with) const {
    if (wrongs_ < kFewestFittedOfStep || !Judges(quantity)) return std::nullopt;
    const Hypothesis zero = with(0);
    const Hypothesis one = with(1);
    if (!Known(one)) return std::nullopt;
    const StepFormula at_zero(zero.rule, zero.setting);
    const StepFormula at_one(one.rule, one.setting);
    const StepFormula own(sample_.rule, sample_.setting);
    double across = 0;
    double along = 0;
    for (const StepElement& element : sample_.elements) {
      const double bound = own.Expect(quantity, element).bound;
      const double from = at_zero.Expect(quantity, element).value;
      const double slope = (at_one.Expect(quantity, element).value - from);
      const double moved = element[At(ResultOf(quantity))] - from;
      if (!std::isfinite(moved) || !std::isfinite(slope) || !(bound > 0) ||
          std::isinf(bound)) {
        continue;
      }
      across += moved * slope / (bound * bound);
      along += slope * slope / (bound * bound);
    }
    if (!(along > 0)) return std::nullopt;
    return across / along;
  }

  bool Judges(StepQuantity quantity) const {
    return std::find(sample_.quantities.begin(), sample_.quantities.end(),
                     quantity) != sample_.quantities.end();
  }

 private:
  bool Known(const Hypothesis& hypothesis) const {
    const auto known = [&](StepField field) {
      return sample_.known[At(field)];
    };
    const StepFormula formula(hypothesis.rule, hypothesis.setting);
    for (const StepQuantity quantity : sample_.quantities) {
      if (hypothesis.kept.contains(quantity)) {
        if (!known(BeforeOf(quantity))) return false;
        continue;
      }
      const std::vector<StepField> inputs = formula.InputsOf(quantity);
      if (!std::all_of(inputs.begin(), inputs.end(), known)) return false;
    }
    return std::all_of(hypothesis.needs.begin(), hypothesis.needs.end(), known);
  }

  double Headroom(const Hypothesis& hypothesis, const StepFormula& formula,
                  const StepElement& element) const {
    StepElement taken = element;
    if (hypothesis.take) hypothesis.take(&taken);
    double out = 0;
    for (const StepQuantity quantity : sample_.quantities) {
      const ExpectedValue expected =
          hypothesis.kept.contains(quantity)
              ? ExpectedValue{element[At(BeforeOf(quantity))], 0}
              : formula.Expect(quantity, taken);
      out = std::fmax(out,
                      StepHeadroom(element[At(ResultOf(quantity))], expected));
    }
    return out;
  }

  const StepSample& sample_;
  std::vector<bool> wrong_;
  int64_t wrongs_ = 0;
};

class Hypotheses {
 public:
  Hypotheses(const StepSample& sample, const std::vector<double>& decays)
      : sample_(sample), trial_(sample) {
    AddStale();
    AddSettings(decays);
    AddGradients();
  }

  std::optional<StepExplanation> Best() {
    std::optional<StepExplanation> out = BestOf(known_);
    if (out) return out;
    std::vector<Hypothesis> fitted;
    for (auto hypothesis : {ScaledGradient(), OtherRate(), OtherDecay(true),
                            OtherDecay(false), OtherEpsilon()}) {
      if (hypothesis) fitted.push_back(*std::move(hypothesis));
    }
    return BestOf(fitted);
  }

 private:
  Hypothesis Own() const {
    Hypothesis out;
    out.rule = sample_.rule;
    out.setting = sample_.setting;
    return out;
  }

  Hypothesis& Add(BugClass bug_class, std::string words) {
    known_.push_back(Own());
    known_.back().bug_class = bug_class;
    known_.back().words = std::move(words);
    return known_.back();
  }

  // What was not done at all.
  void AddStale() {
    Add(BugClass::kStaleValue,
        "a step that was not made: all is bit for bit what it was")
        .kept = {sample_.quantities.begin(), sample_.quantities.end()};
    const auto keep = [&](std::string words,
                          std::initializer_list<StepQuantity> quantities) {
      if (std::none_of(quantities.begin(), quantities.end(),
                       [&](StepQuantity q) { return trial_.Judges(q); })) {
        return;
      }
      Add(BugClass::kStaleValue, std::move(words)).kept = quantities;
    };
    keep("moments that are updated and a parameter that is not",
         {StepQuantity::kParameter});
    keep("moments that are not updated",
         {StepQuantity::kFirst, StepQuantity::kSecond, StepQuantity::kLargest,
          StepQuantity::kMomentum});
    AddUnwritten();
    keep("a first moment that is not updated", {StepQuantity::kFirst});
    keep("a second moment that is not updated", {StepQuantity::kSecond});
    keep(
        "a working copy that is bit for bit the one before the step: the "
        "master copy is not written to it",
        {StepQuantity::kCopy});
    if (sample_.setting.copy != sample_.setting.parameter) {
      Hypothesis& low =
          Add(BugClass::kLostPrecision,
              "a master copy that is updated from the working copy");
      low.needs = {StepField::kCopy};
      low.take = [](StepElement* element) {
        (*element)[At(StepField::kParameter)] =
            (*element)[At(StepField::kCopy)];
      };
    }
  }

  // The parameter follows from moments that nobody wrote down.
  void AddUnwritten() {
    Hypothesis& unwritten =
        Add(BugClass::kStaleValue,
            "moments that the step computes with and does not write");
    unwritten.kept = {StepQuantity::kFirst, StepQuantity::kSecond,
                      StepQuantity::kLargest, StepQuantity::kMomentum};
    unwritten.fitted = true;
    unwritten.needs = {StepField::kGradient};
    const StepFormula formula(sample_.rule, sample_.setting);
    const std::vector<StepQuantity>& judged = sample_.quantities;
    unwritten.take = [formula, judged](StepElement* element) {
      for (const StepQuantity quantity : judged) {
        if (quantity == StepQuantity::kParameter ||
            quantity == StepQuantity::kCopy) {
          continue;
        }
        const double value = formula.Expect(quantity, *element).value;
        (*element)[At(ResultOf(quantity))] = value;
      }
    };
  }

  void AddSettings(const std::vector<double>& decays) {
    const StepRule& rule = sample_.rule;
    if (rule.weight_decay != 0) {
      Add(BugClass::kOtherHyperparameters,
          fmt::format("a step without weight decay ({} by its settings)",
                      rule.weight_decay))
          .rule.weight_decay = 0;
      if (rule.algorithm == StepAlgorithm::kAdam) {
        Add(BugClass::kOtherHyperparameters,
            rule.decoupled ? "weight decay that is added to the gradient, not "
                             "decoupled as its settings say"
                           : "weight decay that is decoupled, not added to the "
                             "gradient as its settings say")
            .rule.decoupled = !rule.decoupled;
      }
    }
    for (const double decay : decays) {
      if (decay == rule.weight_decay || decay == 0) continue;
      for (const bool decoupled : {rule.decoupled, true}) {
        Hypothesis& other =
            Add(BugClass::kOtherHyperparameters,
                fmt::format("a weight decay of {}, as other parameters have "
                            "({} by its own settings)",
                            decay, rule.weight_decay));
        other.value = decay;
        other.rule.weight_decay = decay;
        other.rule.decoupled = decoupled;
        if (rule.weight_decay != 0 || rule.decoupled ||
            rule.algorithm == StepAlgorithm::kSgd) {
          break;
        }
      }
    }
    if (rule.algorithm != StepAlgorithm::kAdam) return;
    Add(BugClass::kOtherHyperparameters,
        rule.bias_correction ? "a step without bias correction"
                             : "bias correction, which its settings switch off")
        .rule.bias_correction = !rule.bias_correction;
    if (rule.bias_correction) {
      for (const int by : {-1, 1}) {
        const double count = sample_.setting.count + by;
        if (count < 1) continue;
        Hypothesis& shifted =
            Add(BugClass::kOtherHyperparameters,
                fmt::format("bias correction for step {} instead of {}", count,
                            sample_.setting.count));
        shifted.setting.count = count;
        shifted.of_count = true;
        shifted.value = count;
      }
    }
    Add(BugClass::kOtherHyperparameters, "an epsilon inside of the root")
        .setting.eps_inside_root = true;
    if (rule.beta1 != rule.beta2) {
      Hypothesis& exchanged =
          Add(BugClass::kOtherHyperparameters, "betas that are exchanged");
      std::swap(exchanged.rule.beta1, exchanged.rule.beta2);
    }
  }

  void AddGradients() {
    const StepSetting& setting = sample_.setting;
    if (setting.clip != 1 || setting.clip_error != 0) {
      Hypothesis& whole =
          Add(BugClass::kGradientNorm,
              fmt::format("gradients that are not clipped (by {:.6g}, as "
                          "the reported norm says)",
                          setting.clip));
      whole.setting.clip = 1;
      whole.setting.clip_error = 0;
      whole.value = 1;
      Hypothesis& twice =
          Add(BugClass::kGradientNorm,
              fmt::format("gradients that are clipped twice (by {:.6g} each "
                          "time)",
                          setting.clip));
      twice.setting.clip = setting.clip * setting.clip;
      twice.setting.clip_error *= 2;
      twice.value = twice.setting.clip;
    }
    for (const bool clipped : {true, false}) {
      Hypothesis& old =
          Add(BugClass::kStaleValue, "the gradient of the iteration before");
      old.needs = {StepField::kOldGradient};
      old.take = [](StepElement* element) {
        (*element)[At(StepField::kGradient)] =
            (*element)[At(StepField::kOldGradient)];
      };
      if (!clipped) old.setting.clip = 1;
    }
  }

  StepQuantity FirstMoment() const {
    if (sample_.rule.algorithm == StepAlgorithm::kAdam) {
      return StepQuantity::kFirst;
    }
    return sample_.rule.momentum != 0 ? StepQuantity::kMomentum
                                      : StepQuantity::kParameter;
  }

  std::optional<Hypothesis> ScaledGradient() const {
    const auto with = [&](double x) {
      Hypothesis out = Own();
      out.setting.gradient_scale *= x;
      out.fitted = true;
      return out;
    };
    const auto x = trial_.Fit(FirstMoment(), with);
    if (!x) return std::nullopt;
    Hypothesis out = with(*x);
    out.value = *x;
    if (!sample_.rule.clip_norm) {
      out.bug_class = BugClass::kConstantFactor;
      out.words = fmt::format("gradients times {:.6g}", *x);
      return out;
    }
    const double clip = sample_.setting.clip * *x;
    out.bug_class = BugClass::kGradientNorm;
    out.value = clip;
    out.words = fmt::format(
        "gradients times {:.6g}, as for a norm of {:.6g}; the reported norm of "
        "{:.6g} makes {:.6g}",
        clip, *sample_.rule.clip_norm / clip - 1e-6, sample_.norm,
        sample_.setting.clip);
    return out;
  }

  std::optional<Hypothesis> OtherRate() const {
    const auto with = [&](double x) {
      Hypothesis out = Own();
      out.rule.lr = x;
      out.fitted = true;
      return out;
    };
    const auto x = trial_.Fit(StepQuantity::kParameter, with);
    if (!x) return std::nullopt;
    Hypothesis out = with(*x);
    out.bug_class = BugClass::kOtherHyperparameters;
    out.value = *x / sample_.rule.lr;
    out.words = fmt::format(
        "a learning rate of {:.6g}, {:.6g} times that of "
        "its settings ({})",
        *x, out.value, sample_.rule.lr);
    return out;
  }

  std::optional<Hypothesis> OtherDecay(bool decoupled) const {
    if (decoupled && sample_.rule.algorithm == StepAlgorithm::kSgd) {
      return std::nullopt;
    }
    const auto with = [&](double x) {
      Hypothesis out = Own();
      out.rule.weight_decay = x;
      out.rule.decoupled = decoupled;
      out.fitted = true;
      return out;
    };
    const auto x =
        trial_.Fit(decoupled ? StepQuantity::kParameter : FirstMoment(), with);
    if (!x) return std::nullopt;
    Hypothesis out = with(*x);
    out.bug_class = BugClass::kOtherHyperparameters;
    out.value = *x;
    out.words = fmt::format("a {}weight decay of {:.6g} ({} by its settings)",
                            decoupled ? "decoupled " : "", *x,
                            sample_.rule.weight_decay);
    return out;
  }

  // The mean of what each element says, weighted by how exactly it says it: a
  // bound of what is moved is one of the denominator, and so of epsilon.
  std::optional<Hypothesis> OtherEpsilon() const {
    const StepRule& rule = sample_.rule;
    if (rule.algorithm != StepAlgorithm::kAdam ||
        !trial_.Judges(StepQuantity::kParameter)) {
      return std::nullopt;
    }
    const StepSetting& setting = sample_.setting;
    const StepFormula own(rule, setting);
    const double c1 =
        rule.bias_correction ? 1 - std::pow(rule.beta1, setting.count) : 1;
    const double c2 =
        rule.bias_correction ? 1 - std::pow(rule.beta2, setting.count) : 1;
    double sum = 0;
    double weights = 0;
    int64_t seen = 0;
    for (const StepElement& element : sample_.elements) {
      const double bound = own.Expect(StepQuantity::kParameter, element).bound;
      const double decay = rule.decoupled ? rule.lr * rule.weight_decay : 0;
      const double moved = element[At(StepField::kParameter)] * (1 - decay) -
                           element[At(StepField::kParameterAfter)];
      const double second = element[At(rule.amsgrad ? StepField::kLargestAfter
                                                    : StepField::kSecondAfter)];
      const double denominator =
          rule.lr / c1 * element[At(StepField::kFirstAfter)] / moved;
      const double exactness = moved / (denominator * bound);
      const double weight = exactness * exactness;
      if (!std::isfinite(denominator) || !std::isfinite(weight)) continue;
      ++seen;
      sum += weight * (denominator - std::sqrt(second / c2));
      weights += weight;
    }
    if (seen < kFewestFittedOfStep || !(weights > 0)) return std::nullopt;
    Hypothesis out = Own();
    out.fitted = true;
    out.rule.eps = out.value = sum / weights;
    if (!(out.rule.eps >= 0)) return std::nullopt;
    out.bug_class = BugClass::kOtherHyperparameters;
    out.words = fmt::format("an epsilon of {:.3g} ({} by its settings)",
                            out.rule.eps, rule.eps);
    return out;
  }

  // The closest of those that explain; of equals the first.
  std::optional<StepExplanation> BestOf(
      const std::vector<Hypothesis>& hypotheses) const {
    const Hypothesis* best = nullptr;
    double closest = 0;
    for (const Hypothesis& hypothesis : hypotheses) {
      const std::optional<double> mean = trial_.Explains(hypothesis);
      if (!mean || (best != nullptr && *mean >= closest)) continue;
      best = &hypothesis;
      closest = *mean;
    }
    if (best == nullptr) return std::nullopt;
    return StepExplanation{best->bug_class, best->words, best->value,
                           trial_.wrong(), best->of_count};
  }

  const StepSample& sample_;
  Trial trial_;
  std::vector<Hypothesis> known_;
};

}  // namespace

std::optional<StepExplanation> ExplainStep(const StepSample& sample,
                                           const std::vector<double>& decays) {
  return Hypotheses(sample, decays).Best();
}

}  // namespace ttrace
