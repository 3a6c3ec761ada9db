#include "src/localize/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "src/judge/reason_words.h"
#include "src/localize/blame.h"

namespace ttrace {
namespace {

// What the two ways have to agree on: the place in the code, not the layer in
// which it shows first, and not the tensor that shows it.
Cause PlaceOf(const Culprit& culprit) {
  // Any role of a module, or of a parameter, stands for all of them.
  const bool parameter = IsParameterRole(culprit.tensor.role);
  return CauseOf(parameter ? Role::kParam : Role::kOutput,
                 {culprit.fqn, culprit.direction, culprit.stage, ""});
}

class Joiner {
 public:
  Joiner(const std::vector<TensorJudgement>& tensors, Localization dataflow,
         IsolationOutcome isolation)
      : dataflow_(std::move(dataflow)), isolation_(std::move(isolation)) {
    for (const TensorJudgement& t : tensors) by_id_.emplace(t.id, &t);
    out_.downstream = dataflow_.downstream;
  }

  Agreement Join() {
    std::set<size_t> used;
    for (size_t i = 0; i < isolation_.culprits.size(); ++i) {
      Culprit& alone = isolation_.culprits[i];
      const std::vector<size_t> same = SameAs(i);
      // Dataflow names a place once; a second one inside it is seen by both
      // only if it stands out end to end as well.
      const bool told = !same.empty() && !used.contains(same.front());
      if (same.empty() || (!told && !Of(alone.tensor).diverged())) {
        AddHidden(std::move(alone));
        continue;
      }
      AddAgreed(dataflow_.culprits[same.front()],
                used.insert(same.front()).second, std::move(alone));
      used.insert(same.begin(), same.end());
    }
    const size_t isolated = out_.culprits.size();
    for (size_t i = 0; i < dataflow_.culprits.size(); ++i) {
      if (!used.contains(i)) {
        AddUnconfirmed(std::move(dataflow_.culprits[i]), isolated);
      }
    }
    std::stable_sort(out_.culprits.begin(), out_.culprits.end(),
                     [this](const Culprit& a, const Culprit& b) {
                       return Order(a.tensor) < Order(b.tensor);
                     });
    return std::move(out_);
  }

 private:
  const TensorJudgement& Of(const TensorId& id) const { return *by_id_.at(id); }
  int64_t Order(const TensorId& id) const { return Of(id).order; }

  // Dataflow's culprits that are the same as isolation's `i`: the same place,
  // or shown by a tensor that isolation lays to the same cause.
  std::vector<size_t> SameAs(size_t i) const {
    std::vector<size_t> same;
    const Cause place = PlaceOf(isolation_.culprits[i]);
    for (size_t d = 0; d < dataflow_.culprits.size(); ++d) {
      const Culprit& whole = dataflow_.culprits[d];
      const auto blamed = isolation_.blamed.find(whole.tensor);
      if (PlaceOf(whole) == place ||
          (blamed != isolation_.blamed.end() && blamed->second == i)) {
        same.push_back(d);
      }
    }
    return same;
  }

  // `first`: no other culprit of isolation was joined with this one.
  void AddAgreed(const Culprit& whole, bool first, Culprit alone) {
    const std::string confirmed = fmt::format(
        "isolated, on the reference's values, it is out of bounds too "
        "(headroom {:.3g})",
        alone.headroom);
    // The other way's word is kept where it is about the same tensor.
    const bool same = whole.tensor == alone.tensor;
    if (first && Order(whole.tensor) < Order(alone.tensor)) {
      // End to end it shows earlier, where isolation has no verdict.
      Culprit joined = whole;
      joined.affected = alone.affected.count > whole.affected.count
                            ? alone.affected
                            : whole.affected;
      AddRanks(alone.ranks, &joined);
      AddShownBy(alone.shown_by, &joined);
      joined.where +=
          fmt::format("; isolated, {} is out of bounds too (headroom {:.3g})",
                      NameOrModel(alone.tensor.fqn), alone.headroom);
      alone = std::move(joined);
    } else if (first) {
      if (same) {
        alone.headroom = std::max(alone.headroom, whole.headroom);
        if (!whole.where.empty()) {
          // A place between two points is named better by isolation.
          alone.where = IsEdge(alone.tensor.role)
                            ? alone.where
                            : whole.where + "; " + confirmed;
        }
      }
      if (whole.affected.count > alone.affected.count) {
        alone.affected = whole.affected;
      }
      AddRanks(whole.ranks, &alone);
    }
    AddShownBy(whole.shown_by, &alone);
    alone.found_by = {"dataflow", "isolation"};
    ++out_.by_both;
    out_.culprits.push_back(std::move(alone));
  }

  // Only isolation names it: say what hid it.
  void AddHidden(Culprit culprit) {
    const TensorJudgement& t = Of(culprit.tensor);
    const Culprit* before = nullptr;
    for (const Culprit& other : dataflow_.culprits) {
      if (Order(other.tensor) < t.order) {
        before = &other;
        break;
      }
    }
    switch (t.verdict) {
      case TensorVerdict::kDiverged:
        culprit.disagreement =
            before == nullptr
                ? "end to end it is out of bounds too, but so is what it was "
                  "computed from"
                : fmt::format(
                      "end to end it is out of bounds too, but downstream of "
                      "{}: "
                      "only isolation shows that it is faulty itself",
                      NameOrModel(before->fqn));
        break;
      case TensorVerdict::kNotCheckable:
        culprit.disagreement =
            "only isolation sees it; end to end it cannot be judged: " +
            ReasonWords(t.reason);
        break;
      case TensorVerdict::kUnmatched:
        culprit.disagreement =
            "only isolation sees it; end to end it has no partner: " +
            ReasonWords(t.reason);
        break;
      default:
        culprit.disagreement = fmt::format(
            "end to end it is within its bound (headroom {:.2g}): the noise of "
            "the whole run hides it",
            t.headroom);
        break;
    }
    ++out_.by_isolation;
    out_.culprits.push_back(std::move(culprit));
  }

  // Weights and data are the reference's again in each iteration, so a place
  // that was faulty in one explains nothing in the next, unless isolation finds
  // it faulty there as well.
  bool Explains(size_t culprit, const TensorJudgement& t) const {
    return std::any_of(isolation_.blamed.begin(), isolation_.blamed.end(),
                       [&](const auto& blamed) {
                         return blamed.second == culprit &&
                                blamed.first.iteration == t.id.iteration &&
                                Order(blamed.first) < t.order;
                       });
  }

  // Only dataflow names it. `isolated`: how many of the culprits so far are
  // isolation's.
  void AddUnconfirmed(Culprit culprit, size_t isolated) {
    const TensorJudgement& t = Of(culprit.tensor);
    const bool explained = isolation_.explained.contains(t.id);
    if (!t.judged_isolated()) {
      out_.culprits.push_back(std::move(culprit));
      return;
    }
    const Culprit* cause = nullptr;
    for (size_t i = 0; i < isolated; ++i) {
      const Culprit& other = out_.culprits[i];
      if (Explains(i, t) || explained) {
        cause = &other;
        break;
      }
    }
    if (cause != nullptr) {
      if (out_.dropped.size() < 5) {
        out_.dropped.push_back(fmt::format(
            "{} ({}, headroom {:.3g} end to end, {}) follows from {}",
            NameOrModel(culprit.fqn), ToString(culprit.direction),
            culprit.headroom,
            explained ? "explained when isolated"
                      : fmt::format("{:.2g} isolated", t.isolated->headroom),
            NameOrModel(cause->fqn)));
      }
      out_.downstream += culprit.affected.count;
      return;
    }
    if (!explained) {
      culprit.disagreement = fmt::format(
          "isolation finds it clean: on the reference's values its headroom is "
          "{:.2g}, end to end {:.3g}",
          t.isolated->headroom, culprit.headroom);
      ++out_.by_dataflow;
    }
    out_.culprits.push_back(std::move(culprit));
  }

  std::map<TensorId, const TensorJudgement*> by_id_;
  Localization dataflow_;
  IsolationOutcome isolation_;
  Agreement out_;
};

}  // namespace

Agreement Agree(const std::vector<TensorJudgement>& tensors,
                Localization dataflow, IsolationOutcome isolation) {
  return Joiner(tensors, std::move(dataflow), std::move(isolation)).Join();
}

std::string AgreementWords(const IsolationOutcome& isolation,
                           const Agreement& agreement) {
  const int64_t faulty = agreement.by_both + agreement.by_isolation;
  std::string text = fmt::format(
      "isolation: {} of {} module tensors judged in isolation (closest "
      "clean headroom {:.2g}), {} faulty place{}",
      isolation.judged, isolation.of, isolation.worst_clean,
      faulty == 0 ? "no" : std::to_string(faulty), faulty == 1 ? "" : "s");
  std::vector<std::string> differences;
  if (agreement.by_isolation > 0) {
    differences.push_back(
        fmt::format("{} named by isolation only", agreement.by_isolation));
  }
  if (agreement.by_dataflow > 0) {
    differences.push_back(
        fmt::format("{} named by dataflow only", agreement.by_dataflow));
  }
  if (!agreement.dropped.empty()) {
    differences.push_back(fmt::format("not faults of their own: {}",
                                      fmt::join(agreement.dropped, ", ")));
  }
  return differences.empty()
             ? text + "; dataflow agrees"
             : fmt::format("{}; {}", text, fmt::join(differences, "; "));
}

}  // namespace ttrace
