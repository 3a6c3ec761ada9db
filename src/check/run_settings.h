// What two runs noted of dropout and of their optimizers: read once in a check.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_CHECK_RUN_SETTINGS_H_
#define TTRACE_SRC_CHECK_RUN_SETTINGS_H_

#include <optional>

#include "src/audit/dropout_masks.h"
#include "src/experiment/side.h"
#include "src/step/hyperparameters.h"

namespace ttrace {

struct RunSettings {
  explicit RunSettings(const Side& side)
      : dropout(ReadDropout(side.trace())),
        hyperparameters(ReadHyperparameters(side.trace())) {}

  DropoutFacts dropout;
  Hyperparameters hyperparameters;
};

struct SettingsOfRuns {
  std::optional<RunSettings> reference;
  RunSettings candidate;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_RUN_SETTINGS_H_
