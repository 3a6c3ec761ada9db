// What one rank did in one leg, as slices: made of its records one by one.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_REPORT_TIMELINE_LEG_SLICES_H_
#define TTRACE_SRC_REPORT_TIMELINE_LEG_SLICES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "src/report/timeline/timeline.h"
#include "src/trace/record_table.h"

namespace ttrace {

class LegSlices {
 public:
  void Add(const Record& record, int64_t at_us, bool flagged);

  // In lanes. Empty afterwards.
  std::vector<TimelineSlice> Take();

  // When what a collective is said to be called from was over: a module in a
  // phase, or else the iteration.
  std::optional<int64_t> EndOf(const Collective& call) const;

 private:
  struct Span {
    int64_t begin_us = 0;
    int64_t end_us = 0;
    bool flagged = false;
  };
  static void Extend(Span& span, int64_t at_us, bool flagged, bool first);
  template <typename Key>
  void AddTo(std::map<Key, Span>& spans, const Key& key, int64_t at_us,
             bool flagged);

  // Puts modules around those that are part of them.
  void Nest();

  // Iteration, pass, micro-batch, module, call of it.
  using ModuleKey = std::tuple<int, Pass, int, std::string, int>;
  using PassKey = std::tuple<int, Pass, int>;
  static PassKey PassOf(const ModuleKey& key) {
    return {std::get<0>(key), std::get<1>(key), std::get<2>(key)};
  }
  std::map<ModuleKey, Span> modules_;
  std::map<PassKey, Span> passes_;
  std::map<int, Span> iterations_;
  std::map<int, Span> steps_;  // of the optimizer, by iteration
};

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_TIMELINE_LEG_SLICES_H_
