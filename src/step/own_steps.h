// OwnSteps: makes a rank's own optimizer steps again while it runs, when all of
// a step is recorded (rank_replay.h).
//
// Thread safety: one thread, that of the rank's writer.

#ifndef TTRACE_SRC_STEP_OWN_STEPS_H_
#define TTRACE_SRC_STEP_OWN_STEPS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/experiment/side.h"
#include "src/step/rank_replay.h"
#include "src/trace/own_trace.h"
#include "src/trace/writer.h"
#include "src/trace/writing/deferred_records.h"

namespace ttrace {

class OwnSteps {
 public:
  explicit OwnSteps(RankMeta meta) : meta_(std::move(meta)) {}

  // What is set aside until its step was made again: what the optimizer keeps.
  static bool IsOfStep(const RecordFields& record) {
    return record.leg == kReal && record.id.role == Role::kOptimState;
  }

  // What is written and noted beside that.
  void Wrote(const RecordFields& record);
  void Noted(const std::string& kind, const std::string& json_object);

  struct Replays {
    std::map<StepOfParameter, RankReplay> steps;
    // The rank's trace, for who wants to read what was set aside.
    std::shared_ptr<const OwnTrace> trace;
    std::vector<Record> held;  // of it, in the order of DeferredRecords::held()
  };
  // All steps of `iteration` of which what they left is recorded. Weights were
  // taken from `grafted_from` before each of them, if notes say so. What was
  // written and noted before is forgotten, but for what the next step needs.
  // Fails if a file cannot be read.
  Result<Replays> Replay(int iteration, const DeferredRecords& aside,
                         WrittenRecords& written, const Side& grafted_from);

 private:
  Result<Replays> MakeSteps(int iteration, const DeferredRecords& aside,
                            WrittenRecords& written, const Side& grafted_from);

  RankMeta meta_;
  int newest_ = -1;                    // iteration
  std::vector<RecordFields> written_;  // of this iteration and the one before
  std::vector<DeferredRecords::Held> left_;  // by the step before
  std::vector<Note> notes_;                  // of the run
  std::vector<Note> step_notes_;             // of this iteration
};

// Whether all that was recorded of the step on its rank is as it must be, so
// that nobody has to look at it again.
bool IsRight(const RankReplay& replay);

}  // namespace ttrace

#endif  // TTRACE_SRC_STEP_OWN_STEPS_H_
