// IndexTail: what is added to a rank's index while the rank writes it, counted.
//
// For who shows how far a run is. A line in another form than the writer's is
// passed over: who judges the trace reads it properly, later.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_RUN_INDEX_TAIL_H_
#define TTRACE_SRC_RUN_INDEX_TAIL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ttrace/leg.h"

namespace ttrace {

class IndexTail {
 public:
  explicit IndexTail(std::string path) : path_(std::move(path)) {}

  // Reads what came since, at most so much that a look at many ranks does not
  // take long.
  void Update();

  int64_t records() const { return records_; }
  // Of the last record, or of a leg that was sealed after it; -1: none yet.
  int iteration() const { return iteration_; }
  const Leg& leg() const { return leg_; }
  const std::vector<std::pair<int, Leg>>& sealed() const { return sealed_; }

 private:
  void Take(std::string_view line);

  std::string path_;
  int64_t position_ = 0;  // of the first line that was not read
  int64_t records_ = 0;
  int iteration_ = -1;
  Leg leg_;
  std::vector<std::pair<int, Leg>> sealed_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_INDEX_TAIL_H_
