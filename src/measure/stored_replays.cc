#include "src/measure/stored_replays.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/measure/json_fields.h"

namespace ttrace {
namespace {

struct StoredReplay {
  StepOfParameter step;
  RankReplay replay;
};

template <typename A>
void VisitFields(A& field, StoredReplay& s) {
  field("iteration", s.step.iteration);
  field("fqn", s.step.fqn);
  VisitFields(field, s.replay);
}

// Of a sample, what a diagnosis relies on.
bool IsSound(const RankReplay& replay) {
  const auto counts = [](const StepErrors& errors) {
    return errors.judged >= 0 && errors.out >= 0 &&
           errors.out <= errors.judged && errors.ranks.empty();
  };
  return std::all_of(replay.errors.begin(), replay.errors.end(), counts);
}

}  // namespace

std::string EncodeReplay(const StepOfParameter& step,
                         const RankReplay& replay) {
  return JsonEncoder::Line(StoredReplay{step, replay});
}

StoredReplays ReadStoredReplays(const Trace& trace) {
  StoredReplays out;
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) {
      if (note.kind != kReplayedStepNote) continue;
      const auto json = nlohmann::json::parse(note.json, nullptr, false);
      // Not on the stack: GCC 12 sees uninitialised members there.
      const auto stored = std::make_unique<StoredReplay>();
      std::string bad;
      JsonDecoder decoder(json, &bad);
      VisitFields(decoder, *stored);
      if (!bad.empty() || !IsSound(stored->replay)) continue;
      out.insert_or_assign({std::move(stored->step), rank.meta.rank},
                           std::move(stored->replay));
    }
  }
  return out;
}

}  // namespace ttrace
