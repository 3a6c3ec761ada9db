// A TraceWriter whose files are written by a thread of its own.
//
// Append copies the tensor and returns; digests, comparisons with other legs
// and writes are made behind it, in the order of the calls. The copies lie in a
// ring of a fixed size: where the thread does not keep up, Append waits, and
// memory does not grow. A tensor that is larger than half of the ring is not
// copied: its Append waits until it was written.
//
// Where a summary is all that is kept of a large tensor, it is made by Append,
// straight from the tensor's memory. Nothing is staged but the summary, and the
// thread does parts of the work if it has nothing to write (Sink::Do).
//
// Notes and seals are written in their turn, behind it as well: nobody waits
// for a disk to flush. Flush and Close wait for all that was called before
// them, so what they promise holds as it does without a thread. What a process
// loses that is killed is what was not written yet. An error is the answer of a
// later call, which is carried out nevertheless, or of Flush or Close, which
// then is not. No leg is sealed without what failed.
//
// A tensor of a device (src/trace/device/device_copier.h) is on its way to the
// ring when AppendFrom returns; the thread waits until it is there. So many may
// be on their way that the ring is full, and no more than kMostOnTheirWay. One
// that is larger than half of the ring is waited for by its AppendFrom.
//
// A device may hang, for want of another rank. A process that ends is not held
// up by that: where nothing arrives for kPatience, Close, of a trace that is
// not complete, and the destructor do without what is still on its way.
//
// The thread starts with the first call and takes no signals. A forked child
// is refused as by any writer, and has neither the thread nor its duties.

#ifndef TTRACE_SRC_TRACE_WRITING_WRITER_THREAD_H_
#define TTRACE_SRC_TRACE_WRITING_WRITER_THREAD_H_

#include <chrono>
#include <cstddef>
#include <memory>

#include "src/trace/sink.h"

namespace ttrace {

// What a disk of 1.5 GB/s takes in some 80 ms.
inline constexpr size_t kStagingBytes = size_t{128} << 20;

// A device that works delivers in a fraction of a second.
inline constexpr std::chrono::seconds kPatience(5);

// As `writer`, by a thread. Thread safety: one thread at a time.
std::unique_ptr<Sink> WriteOnThread(
    std::unique_ptr<TraceWriter> writer, size_t staging_bytes = kStagingBytes,
    std::chrono::milliseconds patience = kPatience);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_WRITING_WRITER_THREAD_H_
