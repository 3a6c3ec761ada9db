// Ranks that were fed the very same rows as another.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_EXPERIMENT_TWIN_RANKS_H_
#define TTRACE_SRC_EXPERIMENT_TWIN_RANKS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "src/align/fed_rows.h"
#include "src/experiment/match_rows.h"

namespace ttrace {

struct TwinRanks {
  std::vector<int> ranks;   // sorted
  std::set<uint64_t> keys;  // of their rows
};

// `ranks`: of each row. Rows of a rank in any order, at least four different
// ones, which a draw of rows hardly gives two ranks by chance, and fewer than
// `whole`: who reads the whole batch may use a part of it.
TwinRanks FindTwins(const RowKeys& rows, const std::vector<int>& ranks,
                    size_t whole);

// In one call of the model, by what stands first in its arguments.
std::vector<int> RanksFedAlike(const FedRows::Parts& parts);

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_TWIN_RANKS_H_
