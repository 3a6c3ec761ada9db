// One list of culprits from the two ways of finding places.
//
// Dataflow looks at the run as it was, so it sees everything that happened but
// only what stands out of the noise of a whole run. Isolation sees one module
// at a time, without the errors of others, but not state: parameters, data, the
// optimizer, and modules that could not be isolated.
//
//   both name a place       one culprit, found by both
//   isolation alone         a culprit that says how it was hidden end to end
//   dataflow alone, where isolation
//     cannot look           stays as it is
//     found it clean        an earlier culprit of isolation explains it, and it
//                           is downstream; without one it stays and says that
//                           they disagree
//     blames something else it is downstream of that
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_LOCALIZE_AGREEMENT_H_
#define TTRACE_SRC_LOCALIZE_AGREEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/localize/dataflow.h"
#include "src/localize/isolation.h"

namespace ttrace {

struct Agreement {
  std::vector<Culprit> culprits;  // in execution order
  int64_t downstream = 0;         // diverged tensors that are no culprit's own
  int64_t by_both = 0;
  int64_t by_isolation = 0;  // alone
  int64_t by_dataflow = 0;   // alone, though isolation looked there
  // Places that dataflow named and isolation explains, in words; at most five.
  std::vector<std::string> dropped;
};

// `tensors` sorted by TensorJudgement::order; both inputs made of them.
Agreement Agree(const std::vector<TensorJudgement>& tensors,
                Localization dataflow, IsolationOutcome isolation);

// "isolation: 733 of 733 module tensors judged in isolation (closest headroom
// 0.31), 1 faulty place; dataflow agrees"
std::string AgreementWords(const IsolationOutcome& isolation,
                           const Agreement& agreement);

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_AGREEMENT_H_
