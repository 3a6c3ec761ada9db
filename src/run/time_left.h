// How long a run under capture still takes, from how long its parts took.
//
// A part is one execution of an iteration. What runs in fp32 takes another time
// than what runs as it trains, and neither says anything of the other: as long
// as one kind that is to come was not seen, nothing is known.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_RUN_TIME_LEFT_H_
#define TTRACE_SRC_RUN_TIME_LEFT_H_

#include <optional>
#include <vector>

#include "ttrace/leg.h"

namespace ttrace {

struct PartsToCome {
  int as_trained = 0;
  int fp32 = 0;
};

class TimeLeft {
 public:
  // At `seconds` of some clock, these had ended since the last call. What ends
  // first took the start of the program as well, and does not count.
  void Ended(const std::vector<Leg>& parts, double seconds);

  // Seconds from `seconds` on until all of `parts` have ended; nothing: not
  // known.
  std::optional<double> Of(const PartsToCome& parts, double seconds) const;

 private:
  struct Mean {
    double seconds = 0;
    int parts = 0;
    double value() const { return seconds / parts; }
  };
  Mean as_trained_;
  Mean fp32_;
  std::optional<double> last_end_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_TIME_LEFT_H_
