// How much of what is wrong a rule explains, and when that is enough.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_EXPLAINED_H_
#define TTRACE_SRC_DIAGNOSE_EXPLAINED_H_

#include <cstdint>

namespace ttrace {

struct Explained {
  double wrong = 0;      // parts (rows, slices, tokens) that were looked at
  double explained = 0;  // of these
  // That all these are explained is by chance less often than 2^-bits.
  double bits = 0;
};

// How unlikely it is by chance, in bits, that `width` values equal one of
// `strangers` within a relative `tolerance`: two random vectors do with a
// probability of about tolerance^width.
double BitsOfMatch(double tolerance, int64_t width, int64_t strangers);

// Nearly all that is wrong is explained, and no chance: any of the wrong parts
// may be those that are not, so that one bit more is asked for each.
bool IsEnough(const Explained& explained);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_EXPLAINED_H_
