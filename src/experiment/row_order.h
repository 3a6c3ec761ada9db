// Whether two lists of rows hold the same rows in another order.
//
// Thread safety: pure function.

#ifndef TTRACE_SRC_EXPERIMENT_ROW_ORDER_H_
#define TTRACE_SRC_EXPERIMENT_ROW_ORDER_H_

#include <cstddef>
#include <vector>

namespace ttrace {

// Fewer values a row than this tell rows apart too badly: among n random rows
// of k values some other row is n^(-2/k) times the distance of a pair away.
inline constexpr size_t kLeastRowWidth = 8;

// `a` and `b` hold rows of `width` values each, one after the other. True if
// pairing the rows one to one in another order takes away at least 99 percent
// of the squared distance between the two lists: round-off is not made smaller
// by pairing other rows, and neither are wrong values. False for NaN, for lists
// of other lengths and for rows narrower than kLeastRowWidth.
bool SameRowsInAnotherOrder(const std::vector<double>& a,
                            const std::vector<double>& b, size_t width);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_ROW_ORDER_H_
