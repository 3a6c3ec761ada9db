// Small runs to damage: a reference of one rank and candidates of four, with
// legs of every kind, in memory a few hundred kilobytes.

#ifndef TTRACE_FUZZ_SMALL_RUNS_H_
#define TTRACE_FUZZ_SMALL_RUNS_H_

#include "src/check/testing/synthetic_run.h"

namespace ttrace {

inline SyntheticRun SmallReference() {
  SyntheticRun run;
  run.legs = {"real",    "replay",           "noise.1",
              "noise.2", "isolated.noise.1", "isolated.noise.2"};
  run.iterations = 2;
  run.run_id = "reference";
  return run;
}

inline SyntheticRun SmallCandidate() {
  SyntheticRun run;
  run.mesh = {{"dp", 2}, {"tp", 2}};
  run.legs = {"real", "replay", "isolated"};
  run.noise = 0x1p-24f;
  run.iterations = 2;
  run.notes = {{"graft", R"({"what":"weights"})"},
               {"graft", R"({"what":"data"})"}};
  run.run_id = "candidate";
  return run;
}

// One module multiplies a third of its outputs by 1.25.
inline SyntheticRun SmallWrongCandidate() {
  SyntheticRun run = SmallCandidate();
  run.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t index,
                 float* value) {
    if (t.fqn == "fc" && t.role == Role::kOutput && index % 3 == 0) {
      *value *= 1.25f;
    }
  };
  return run;
}

}  // namespace ttrace

#endif  // TTRACE_FUZZ_SMALL_RUNS_H_
