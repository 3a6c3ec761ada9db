// What the estimate of a sketch may be wrong by where few elements differ.
//
// Of n elements that differ, two meet in one of m buckets in a share of
// n (n - 1) / 2m of all hashes. The square of the norm is then wrong by twice
// their product, up or down as their signs are. Of many elements these are many
// small errors, which are normal; of two to some fifty, one or a few large
// ones.
//
// n is not known, but seen: elements that have buckets of their own are those
// buckets.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_NUMERIC_FEW_ELEMENTS_H_
#define TTRACE_SRC_NUMERIC_FEW_ELEMENTS_H_

#include <vector>

namespace ttrace {

struct FewElements {
  double too_large = 0;  // by which the sum of squares may be
  double too_small = 0;
};

// `squares`: of the differences of two sketches' buckets, all of them. Zero
// where so many elements differ, or one alone, that there is no such danger.
FewElements IfFewElementsDiffer(std::vector<double> squares);

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_FEW_ELEMENTS_H_
