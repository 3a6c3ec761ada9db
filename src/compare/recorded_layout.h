// Where a piece lay when it was recorded. A reading of the batch may have moved
// the record since (experiment/batch_readings.h), and then what was kept
// instead of its values is of places that it no longer names.
//
// Thread safety: pure function of const inputs.

#ifndef TTRACE_SRC_COMPARE_RECORDED_LAYOUT_H_
#define TTRACE_SRC_COMPARE_RECORDED_LAYOUT_H_

#include <optional>

#include "src/trace/reader.h"
#include "src/trace/record_table.h"
#include "ttrace/layout.h"

namespace ttrace {

// `record` is one of `trace`, or a copy.
inline const Layout& RecordedLayout(const Trace& trace, const Record& record) {
  const std::optional<Record> own =
      trace.records().Find(record.rank(), record.sequence());
  return own ? own->layout() : record.layout();
}

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_RECORDED_LAYOUT_H_
