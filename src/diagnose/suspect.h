// Where to look for how a culprit's tensor is wrong: of copies the worst, and
// the place of the worst element in it.
//
// Thread safety: pure function of const inputs.

#ifndef TTRACE_SRC_DIAGNOSE_SUSPECT_H_
#define TTRACE_SRC_DIAGNOSE_SUSPECT_H_

#include <optional>

#include "src/align/catalog.h"
#include "src/compare/summaries/kept_sample.h"
#include "ttrace/layout.h"

namespace ttrace {

class ValueView;

struct Suspect {
  TensorPieces pieces;  // of the candidate, without copies
  SampledPair pair;     // of these and the reference
  Shape place;          // of the element that is furthest off
};

// Looks at up to 2^18 elements. Nothing if a side cannot be read, or if what
// was looked at is equal.
std::optional<Suspect> FindSuspect(const ValueView& view);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_SUSPECT_H_
