#include "src/report/timeline/leg_slices.h"

#include <algorithm>
#include <utility>

#include "src/report/exports/place_words.h"
#include "src/report/timeline/lanes.h"

namespace ttrace {
namespace {

bool IsOfModule(Role role) {
  return role == Role::kInput || role == Role::kOutput ||
         role == Role::kGradOutput || role == Role::kGradInput;
}

bool IsOfStep(Role role) {
  return role == Role::kGradReduced || role == Role::kGradNorm ||
         role == Role::kOptimState;
}

// "a.b.c" has three.
auto PartsOf(const std::string& fqn) {
  return fqn.empty() ? 0 : 1 + std::count(fqn.begin(), fqn.end(), '.');
}

std::string PassName(Pass pass, int micro_batch) {
  std::string name(ToString(pass));
  if (micro_batch >= 0) {
    name += " of micro-batch " + std::to_string(micro_batch);
  }
  return name;
}

}  // namespace

void LegSlices::Extend(Span& span, int64_t at_us, bool flagged, bool first) {
  span.begin_us = first ? at_us : std::min(span.begin_us, at_us);
  span.end_us = first ? at_us : std::max(span.end_us, at_us);
  span.flagged |= flagged;
}

template <typename Key>
void LegSlices::AddTo(std::map<Key, Span>& spans, const Key& key, int64_t at_us,
                      bool flagged) {
  const auto [span, first] = spans.try_emplace(key);
  Extend(span->second, at_us, flagged, first);
}

void LegSlices::Add(const Record& record, int64_t at_us, bool flagged) {
  const TensorId& id = record.id();
  if (id.role == Role::kParamUpdated) {
    // As the next forward uses it, which may be when that begins.
    const auto step = steps_.find(id.iteration);
    if (step != steps_.end()) step->second.flagged |= flagged;
    return;
  }
  AddTo(iterations_, id.iteration, at_us, false);
  if (IsOfStep(id.role)) {
    AddTo(steps_, id.iteration, at_us, flagged);
  } else if (IsOfModule(id.role)) {
    AddTo(
        modules_,
        ModuleKey(id.iteration, id.pass, record.micro_batch(), id.fqn, id.call),
        at_us, flagged);
    AddTo(passes_, PassKey(id.iteration, id.pass, record.micro_batch()), at_us,
          false);
  }
}

std::optional<int64_t> LegSlices::EndOf(const Collective& call) const {
  if (const auto pass = ParsePass(call.phase)) {
    const auto module = modules_.find(
        ModuleKey(call.iteration, *pass, call.micro_batch, call.fqn, 0));
    if (module != modules_.end()) return module->second.end_us;
  }
  const auto step = steps_.find(call.iteration);
  if (call.phase == "optimizer" && step != steps_.end()) {
    return step->second.begin_us;
  }
  const auto iteration = iterations_.find(call.iteration);
  if (iteration == iterations_.end()) return std::nullopt;
  return iteration->second.end_us;
}

void LegSlices::Nest() {
  std::vector<ModuleKey> inner_first;
  for (const auto& [key, span] : modules_) inner_first.push_back(key);
  std::stable_sort(inner_first.begin(), inner_first.end(),
                   [](const ModuleKey& a, const ModuleKey& b) {
                     return PartsOf(std::get<3>(a)) > PartsOf(std::get<3>(b));
                   });
  for (const ModuleKey& key : inner_first) {
    const auto& [iteration, pass, micro_batch, fqn, call] = key;
    const Span inner = modules_.at(key);
    std::string outer = fqn;
    for (bool found = false; !found && !outer.empty();) {
      const size_t dot = outer.rfind('.');
      outer.resize(dot == std::string::npos ? 0 : dot);
      const auto end = modules_.end();
      auto it = modules_.lower_bound(
          ModuleKey(iteration, pass, micro_batch, outer, 0));
      for (; it != end && std::get<3>(it->first) == outer &&
             PassOf(it->first) == PassOf(key);
           ++it) {
        found = true;
        Span& around = it->second;
        if (inner.end_us < around.begin_us || around.end_us < inner.begin_us) {
          continue;  // another use of it
        }
        around.begin_us = std::min(around.begin_us, inner.begin_us);
        around.end_us = std::max(around.end_us, inner.end_us);
      }
    }
  }
}

std::vector<TimelineSlice> LegSlices::Take() {
  // A gradient arrives at the last module of a block before it arrives at the
  // block, and leaves the block before it has left all of its branches.
  Nest();
  std::vector<TimelineSlice> slices;
  const auto add = [&](const Span& span, std::string name, std::string category,
                       int micro_batch) {
    slices.push_back({span.begin_us, span.end_us, std::move(name),
                      std::move(category), micro_batch, span.flagged, 0});
  };
  for (const auto& [iteration, span] : iterations_) {
    add(span, "iteration " + std::to_string(iteration), "iteration", -1);
  }
  for (const auto& [iteration, span] : steps_) {
    add(span, "optimizer's step", "optimizer", -1);
  }
  for (const auto& [key, span] : passes_) {
    const auto& [iteration, pass, micro_batch] = key;
    // A recomputed forward lies within a backward, piece by piece; and stages
    // of a pipeline that are on one rank take turns.
    if (pass == Pass::kRecompute) continue;
    add(span, PassName(pass, micro_batch), std::string(ToString(pass)),
        micro_batch);
  }
  for (const auto& [key, span] : modules_) {
    const auto& [iteration, pass, micro_batch, fqn, call] = key;
    // Of the model only the gradient of its output: the pass says as much.
    if (fqn.empty() && span.begin_us == span.end_us) continue;
    add(span, PlaceName(fqn), std::string(ToString(pass)), micro_batch);
  }
  PutInLanes(&slices);
  *this = LegSlices();
  return slices;
}

}  // namespace ttrace
