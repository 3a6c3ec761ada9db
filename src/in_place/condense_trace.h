// A trace with its reruns, as one of summaries: what is needed to check other
// runs against it later, in a thousandth of the size.
//
// Of the run as it was and of its fp32 rerun digests and sketches are kept; of
// noise reruns what they differ by, exactly. Reruns that were launches of their
// own are put into the one folder. Isolated reruns are left out: isolating a
// candidate's modules takes values.

#ifndef TTRACE_SRC_IN_PLACE_CONDENSE_TRACE_H_
#define TTRACE_SRC_IN_PLACE_CONDENSE_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "src/numeric/sketch.h"
#include "ttrace/status.h"

namespace ttrace {

struct CondenseOptions {
  std::string from;                 // a trace folder
  std::string to;                   // an empty folder
  size_t buckets = kSketchBuckets;  // of a sketch; 0: digests alone
  // Called now and then with (done, total) records.
  std::function<void(int64_t, int64_t)> progress;
};

struct Condensed {
  int64_t records = 0;
  int64_t summaries = 0;     // of these
  int64_t bytes_before = 0;  // of tensors in the files
  int64_t bytes_after = 0;
};

// Fails with kInvalidArgument if the trace or a rerun of it is not complete, or
// the ranks of a rerun lie otherwise, and as Trace::Open, Trace::Read and
// TraceWriter do.
Result<Condensed> CondenseTrace(const CondenseOptions& options);

}  // namespace ttrace

#endif  // TTRACE_SRC_IN_PLACE_CONDENSE_TRACE_H_
