#include "src/localize/causes.h"

#include <map>

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
  std::vector<TensorCause> out(tensors.size());
  int first = -1;
  std::map<int, int> last;  // of each iteration
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorJudgement& t = tensors[i];
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
