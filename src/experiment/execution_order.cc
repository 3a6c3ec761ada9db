#include "src/experiment/execution_order.h"

#include <algorithm>

namespace ttrace {

int PhaseOf(const TensorId& id) {
  switch (id.role) {
    case Role::kData:
    case Role::kParam:
    case Role::kBuffer:
      return 0;
    case Role::kInput:
    case Role::kOutput:
      return id.pass == Pass::kRecompute ? 3 : 1;
    case Role::kLoss:
      return 2;
    case Role::kGradOutput:
    case Role::kGradInput:
      return 3;
    case Role::kGradLocal:
      return 4;
    case Role::kGradReduced:
      return 5;
    case Role::kGradNorm:
      return 6;
    case Role::kParamUpdated:
    case Role::kOptimState:
      return 7;
  }
  return 7;
}

ExecutionKey KeyOf(const TensorId& id, const TensorPieces& pieces,
                   const Rounds& rounds) {
  const int pp = pieces.trace->mesh().Find("pp");
  const int phase = PhaseOf(id);
  ExecutionKey best;
  bool found = false;
  for (const Record* record : pieces.pieces) {
    ExecutionKey key{id.iteration, phase, 0, 0, record->sequence, record->rank};
    if (pp >= 0) {
      const int stage =
          pieces.trace->coordinate(record->rank)[static_cast<size_t>(pp)];
      // Gradients appear, and are reduced, from the last stage on.
      key.stage = phase >= 3 && phase <= 5 ? -stage : stage;
      key.round = rounds.Of(*record);
    }
    // The lowest rank of the stage speaks for it: sequences of different ranks
    // count different records and must not be mixed.
    const auto place = [](const ExecutionKey& k) {
      return std::tuple(k.round, k.stage, k.rank, k.sequence);
    };
    if (!found || place(key) < place(best)) best = key;
    found = true;
  }
  return best;
}

}  // namespace ttrace
