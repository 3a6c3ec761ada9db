#include "src/step/step_rule.h"

#include <cmath>
#include <set>
#include <utility>

namespace ttrace {
namespace {

// Of how a step is executed, or of what has been done when it begins.
const std::set<std::string>& WithoutEffect() {
  static const auto& names = *new std::set<std::string>{"foreach",
                                                        "fused",
                                                        "capturable",
                                                        "differentiable",
                                                        "set_grad_none",
                                                        "initial_lr",
                                                        "clip_grad_norm_type",
                                                        kClipped,
                                                        kChangedEarly,
                                                        kIncomplete,
                                                        kClippings};
  return names;
}

// What one rank noted, and which of it was asked for.
class Values {
 public:
  Values(const std::map<std::string, ValuesOfRanks>& all, int rank) {
    for (const auto& [name, of_ranks] : all) {
      for (const auto& [value, ranks] : of_ranks) {
        if (!ranks.contains(rank)) continue;
        if (!values_.emplace(name, value).second) Fail(name);  // two groups
      }
    }
  }

  bool empty() const { return values_.empty(); }

  std::string Word(const std::string& name) {
    const Hyperparameter* value = Take(name);
    return value == nullptr ? "" : value->word;
  }

  double Number(const std::string& name) { return NumbersOf(name, 1, 0); }

  // Numbers[index] of `count`, which must be there and finite.
  double NumbersOf(const std::string& name, size_t count, size_t index) {
    const Hyperparameter* value = Take(name);
    if (value == nullptr || !value->word.empty() ||
        value->numbers.size() != count ||
        !std::isfinite(value->numbers[index])) {
      Fail(name);
      return 0;
    }
    return value->numbers[index];
  }

  double NumberOrZero(const std::string& name) {
    return values_.contains(name) ? Number(name) : 0;
  }

  std::optional<double> NumberOrNone(const std::string& name) {
    const Hyperparameter* value = Take(name);
    if (value == nullptr || value->word == "none") return std::nullopt;
    return Number(name);
  }

  bool Flag(const std::string& name, bool otherwise) {
    const Hyperparameter* value = Take(name);
    if (value == nullptr) return otherwise;
    if (value->word == "True") return true;
    if (value->word == "False") return false;
    if (value->word.empty() && value->numbers.size() == 1) {
      return value->numbers.front() != 0;
    }
    Fail(name);
    return otherwise;
  }

  bool Has(const std::string& name) const { return values_.contains(name); }

  // The first name that could not be read, or that nobody asked for and that
  // is not switched off; empty: none.
  std::string Unknown() const {
    if (!failed_.empty()) return *failed_.begin();
    for (const auto& [name, value] : values_) {
      const bool off = value.word == "False" || value.word == "none";
      if (!off && !taken_.contains(name) && !WithoutEffect().contains(name)) {
        return name;
      }
    }
    return "";
  }

  void Fail(const std::string& name) { failed_.insert(name); }

 private:
  const Hyperparameter* Take(const std::string& name) {
    taken_.insert(name);
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }

  std::map<std::string, Hyperparameter> values_;
  std::set<std::string> taken_;
  std::set<std::string> failed_;
};

void ReadAdam(Values* values, StepRule* rule) {
  rule->algorithm = StepAlgorithm::kAdam;
  rule->beta1 = values->NumbersOf("betas", 2, 0);
  rule->beta2 = values->NumbersOf("betas", 2, 1);
  rule->eps = values->Number("eps");
  rule->amsgrad = values->Flag("amsgrad", false);
  rule->bias_correction = values->Flag("bias_correction", true);
  if (rule->weight_decay != 0 && !values->Has("decoupled_weight_decay")) {
    values->Fail("decoupled_weight_decay");
  }
  rule->decoupled = values->Flag("decoupled_weight_decay", false);
}

void ReadSgd(Values* values, StepRule* rule) {
  rule->algorithm = StepAlgorithm::kSgd;
  rule->momentum = values->NumberOrZero("momentum");
  rule->dampening = values->NumberOrZero("dampening");
  rule->nesterov = values->Flag("nesterov", false);
}

}  // namespace

StepRuleReading ReadStepRule(const std::map<std::string, ValuesOfRanks>& all,
                             int rank) {
  StepRuleReading out;
  Values values(all, rank);
  if (values.empty()) return out;
  const std::string kind = values.Word("kind");
  if (kind != "Adam" && kind != "SGD") {
    out.gap = {StepGap::Kind::kAlgorithm, kind};
    return out;
  }
  StepRule rule;
  rule.lr = values.Number("lr");
  rule.weight_decay = values.NumberOrZero("weight_decay");
  rule.maximize = values.Flag("maximize", false);
  kind == "Adam" ? ReadAdam(&values, &rule) : ReadSgd(&values, &rule);
  rule.clip_norm = values.NumberOrNone("clip_grad");
  rule.clip_value = values.NumberOrNone("clip_grad_value");
  // Which of the two came first is not known.
  if (rule.clip_norm && rule.clip_value) values.Fail("clip_grad_value");
  if (const std::string unknown = values.Unknown(); !unknown.empty()) {
    out.gap = {StepGap::Kind::kHyperparameter, unknown};
    return out;
  }
  out.rule = rule;
  return out;
}

}  // namespace ttrace
