// Which records of a candidate show the findings of a result.
//
// Thread safety: const methods may be called from many threads, but Mark.

#ifndef TTRACE_SRC_REPORT_TIMELINE_FINDINGS_H_
#define TTRACE_SRC_REPORT_TIMELINE_FINDINGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/report/result_file.h"
#include "src/report/timeline/timeline.h"
#include "src/trace/record_table.h"

namespace ttrace {

class Findings {
 public:
  // REQUIRES: outlived by `result`
  explicit Findings(const ResultFile& result);

  // Whether the record is of a tensor that is out of bounds in its leg.
  bool IsFlagged(const Record& record) const;

  // What is to be said of it where it was recorded, once for each rank and leg.
  // REQUIRES: IsFlagged(record)
  std::vector<TimelineMark> Mark(const Record& record, int64_t at_us);

  // Tensors and culprits of which no record was marked.
  int64_t unplaced() const;

 private:
  struct Finding {
    const ResultFile::Tensor* tensor = nullptr;  // null: none is out of bounds
    std::vector<size_t> culprits;                // places in the result's list
    bool end_to_end = false;
    bool isolated = false;
    bool placed = false;
    std::map<std::string, std::vector<int>> marked;  // leg -> ranks
  };
  const Finding* Find(const Record& record) const;

  const ResultFile& result_;
  std::map<TensorId, Finding> by_tensor_;
  int64_t unnamed_ = 0;  // of no tensor that a trace could have
};

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_TIMELINE_FINDINGS_H_
