#include "src/measure/stored_replays.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "src/measure/json_fields.h"
#include "src/trace/note_json.h"

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
  ForEachNote(trace, {kReplayedStepNote}, [&](const ParsedNote& note) {
    // Not on the stack: GCC 12 sees uninitialised members there.
    const auto stored = std::make_unique<StoredReplay>();
    std::string bad;
    JsonDecoder decoder(note.json, &bad);
    VisitFields(decoder, *stored);
    if (!bad.empty() || !IsSound(stored->replay)) return;
    out.insert_or_assign({std::move(stored->step), note.rank},
                         std::move(stored->replay));
  });
  return out;
}

}  // namespace ttrace
