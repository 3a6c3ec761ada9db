#include "src/measure/measurements.h"

namespace ttrace {

void AddDamage(const Trace& trace, DamagedNumbers* damage) {
  for (const DamagedRecord& record : trace.damaged()) {
    damage->emplace(record.record.number(), record.error.message());
  }
}

}  // namespace ttrace
