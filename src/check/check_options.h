// What a check is asked to compare, and how.

#ifndef TTRACE_SRC_CHECK_CHECK_OPTIONS_H_
#define TTRACE_SRC_CHECK_CHECK_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/experiment/iteration_range.h"
#include "src/judge/constants.h"
#include "src/measure/measure_progress.h"
#include "ttrace/leg.h"

namespace ttrace {

struct CheckOptions {
  std::string reference;  // folder; empty: only what needs no reference
  std::string candidate;
  // Further trace folders of each side that hold one leg each (one launch per
  // leg): their records join those of the main folder.
  std::vector<std::string> reference_legs;
  std::vector<std::string> candidate_legs;
  // Of the reference's reruns, those that judge; nothing: all that it has.
  std::optional<std::vector<Leg>> legs;
  // The optimizer steps that are judged; nothing: all that the candidate has.
  // Of others only what these are judged by is read (which weights an ungrafted
  // run starts from).
  std::optional<IterationRange> iterations;
  // Whether the runs are the same computation bit for bit: no tolerance, no
  // reruns, no classes (judge_bits.h).
  bool bitwise = false;
  // How often a clean run may be flagged by chance, over all tests together.
  double risk = kRunRisk;
  int threads = 0;  // 0: as many as cores. The result does not depend on it.
  // Filled in while the check runs; null: nobody looks.
  MeasureProgress* progress = nullptr;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_CHECK_OPTIONS_H_
