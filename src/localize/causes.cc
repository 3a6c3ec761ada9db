#include "src/localize/causes.h"

#include <algorithm>
#include <map>
#include <vector>

#include "src/experiment/parameter_roles.h"

namespace ttrace {
namespace {

// What shows two faults is laid to the earlier one.
std::map<TensorId, TensorCause> ShownBy(const std::vector<Culprit>& culprits) {
  std::map<TensorId, TensorCause> out;
  for (size_t i = 0; i < culprits.size(); ++i) {
    const int culprit = static_cast<int>(i);
    out[culprits[i].tensor] = {culprit, TensorCause::As::kFirst};
  }
  for (size_t i = 0; i < culprits.size(); ++i) {
    for (const TensorId& id : culprits[i].shown_by) {
      out.try_emplace(id,
                      TensorCause{static_cast<int>(i), TensorCause::As::kSame});
    }
  }
  return out;
}

// Parts of an iteration, in order.
enum class Phase : uint8_t { kForward, kBackward, kGradients, kStep };

Phase PhaseOf(const TensorId& id) {
  if (id.pass == Pass::kOptimizer) return Phase::kStep;
  if (IsParameterGradient(id.role)) return Phase::kGradients;
  return id.pass == Pass::kForward ? Phase::kForward : Phase::kBackward;
}

// Culprits that runs say of themselves, by iteration, the earliest last.
class StatedCulprits {
 public:
  explicit StatedCulprits(const std::vector<Culprit>& culprits) {
    for (size_t i = culprits.size(); i-- > 0;) {
      const Culprit& culprit = culprits[i];
      if (culprit.OfValues() || culprit.FoundBy("masks")) continue;
      waiting_[culprit.iteration].push_back(
          {PhaseOf(culprit.tensor), static_cast<int>(i)});
    }
    for (auto& [iteration, of] : waiting_) {
      std::stable_sort(of.begin(), of.end(), [](const One& a, const One& b) {
        return a.phase > b.phase;
      });
    }
  }

  // The last that is before `id` and was not returned yet; -1: none. What a
  // step was told is also before the next iterations, of which each begins with
  // what it left.
  int Reached(const TensorId& id) {
    int out = -1;
    for (auto& [iteration, of] : waiting_) {
      if (iteration > id.iteration) break;
      while (!of.empty() &&
             (iteration < id.iteration || of.back().phase <= PhaseOf(id))) {
        out = of.back().culprit;
        of.pop_back();
      }
    }
    return out;
  }

 private:
  struct One {
    Phase phase;
    int culprit;
  };
  std::map<int, std::vector<One>> waiting_;
};

}  // namespace

std::string_view ToString(TensorCause::As as) {
  switch (as) {
    case TensorCause::As::kFirst:
      return "first";
    case TensorCause::As::kSame:
      return "same";
    case TensorCause::As::kDownstream:
      return "downstream";
  }
  return "";
}

std::vector<TensorCause> CausesOf(const std::vector<TensorJudgement>& tensors,
                                  const std::vector<Culprit>& culprits) {
  const std::map<TensorId, TensorCause> shown_by = ShownBy(culprits);
  StatedCulprits stated(culprits);
  std::vector<TensorCause> out(tensors.size());
  int first = -1;
  std::map<int, int> last;  // of each iteration
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorJudgement& t = tensors[i];
    if (const int reached = stated.Reached(t.id); reached >= 0) {
      if (culprits[static_cast<size_t>(reached)].iteration == t.id.iteration) {
        last[t.id.iteration] = reached;
      }
      if (first < 0) first = reached;
    }
    const auto shown = shown_by.find(t.id);
    if (shown != shown_by.end()) {
      out[i] = shown->second;
      last[t.id.iteration] = shown->second.culprit;
      if (first < 0) first = shown->second.culprit;
      continue;
    }
    if (!t.diverged()) continue;
    const auto before = last.find(t.id.iteration);
    out[i].culprit = before == last.end() ? first : before->second;
  }
  return out;
}

}  // namespace ttrace
