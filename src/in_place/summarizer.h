// Summarizer: keeps summaries instead of values, where they are smaller.
//
// Values stay of integers and booleans (data, routing maps), of rows that a
// router chose and of its scores: what aligns two runs is read from them.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_IN_PLACE_SUMMARIZER_H_
#define TTRACE_SRC_IN_PLACE_SUMMARIZER_H_

#include <cstddef>
#include <memory>

#include "src/trace/record_fields.h"
#include "src/trace/writer.h"

namespace ttrace {

// Whether a summary with so many buckets (0: a digest alone) may be kept of
// `record`, which has its values.
bool MayBeSummarized(const RecordFields& record, size_t buckets);

// `buckets`: of the sketches; 0: only digests are kept.
// REQUIRES: 0, or a size that Sketch takes.
std::unique_ptr<Reducer> MakeSummarizer(size_t buckets);

}  // namespace ttrace

#endif  // TTRACE_SRC_IN_PLACE_SUMMARIZER_H_
