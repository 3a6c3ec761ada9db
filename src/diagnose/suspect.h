// Where to look for how a culprit's tensor is wrong: of copies the worst, and
// the place of the worst element in it.
//
// Thread safety: pure function of const inputs.

#ifndef TTRACE_SRC_DIAGNOSE_SUSPECT_H_
#define TTRACE_SRC_DIAGNOSE_SUSPECT_H_

#include <optional>

#include "src/align/catalog.h"
#include "src/diagnose/evidence.h"
#include "ttrace/layout.h"

namespace ttrace {

struct Suspect {
  TensorPieces pieces;  // of the candidate, without copies
  Shape place;          // of the element that is furthest off
};

// Looks at up to 2^18 elements. Nothing if a side is missing or cannot be read,
// or if what was looked at is equal.
std::optional<Suspect> FindSuspect(const Evidence& evidence);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_SUSPECT_H_
