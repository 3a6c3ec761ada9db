// Whether facts that were read back can be worked with.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_MEASURE_SOUND_FACTS_H_
#define TTRACE_SRC_MEASURE_SOUND_FACTS_H_

#include "src/measure/facts.h"

namespace ttrace {

// Regions lie inside their tensor, which is of a size that can be counted, and
// instances name regions that are there.
bool IsSound(const TensorFacts& facts);

// Lies inside its tensor, which is of a size that can be counted.
bool IsSound(const Layout& layout);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_SOUND_FACTS_H_
