// Sink: where capture hands over what it records.
//
// A TraceWriter that also takes tensors that lie in the memory of a device:
// a pointer, the device, and the stream in whose order the values are there.
//
// Thread safety: one thread at a time.

#ifndef TTRACE_SRC_TRACE_SINK_H_
#define TTRACE_SRC_TRACE_SINK_H_

#include <cstddef>
#include <functional>
#include <string>

#include "src/trace/device/device_copier.h"
#include "src/trace/writer.h"

namespace ttrace {

class Sink : public TraceWriter {
 public:
  // From now on tensors of `device` are taken. `driver`: the path of the
  // library that drives it. Fails with kUnsupported where there is none, with
  // kIo if the device refuses: its memory is full, say. Then whoever has a
  // tensor of it copies it to the host first.
  virtual Status OpenDevice(const Device& device,
                            const std::string& driver) = 0;

  // As Append, of a tensor of a device that was opened: `view.data` is an
  // address of it. Returns when its copy is enqueued on the stream: what is
  // enqueued there afterwards may overwrite it. False: the stream is captured
  // into a graph. Nothing was enqueued, and nothing is recorded.
  // Fails as Append, and with kIo if the device does.
  virtual Result<bool> AppendFrom(const DeviceStream& at,
                                  const RecordSpec& spec,
                                  const Occurrence& occurrence,
                                  const StridedView& view) = 0;

  // Has parts of a piece of work of the caller's done, by a thread of the
  // sink's as well while it has nothing to write.
  virtual void Do(size_t count, const std::function<void(size_t)>& part) = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_SINK_H_
