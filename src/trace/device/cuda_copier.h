// A DeviceCopier for CUDA.
//
// The calling thread enqueues on the user's stream a copy within the device and
// an event, and on a stream of ours the wait for that event, the copy to the
// host and a second event, which says that the bytes are there. None of these
// waits. All of it is done in the device's primary context, which is the one
// that torch uses, and put aside again before a call returns; and in the
// relaxed mode of stream capture, so that a graph that another thread captures
// meanwhile is not spoilt.
//
// Tested against a stand-in (tests/native/stand_in_cuda.cc), and on a device by
// python/tests/test_real_device.py where there is one; docs/gpu.md says what
// that showed.

#ifndef TTRACE_SRC_TRACE_DEVICE_CUDA_COPIER_H_
#define TTRACE_SRC_TRACE_DEVICE_CUDA_COPIER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "src/trace/device/device_copier.h"

namespace ttrace {

// Of the device with this index, to `host`, which is pinned while the copier
// lives, and as much memory of the device is taken. `driver`: the path of the
// driver's library.
// Fails with kUnsupported where there is no driver, with kIo if it refuses.
Result<std::unique_ptr<DeviceCopier>> OpenCudaCopier(const std::string& driver,
                                                     int index,
                                                     std::span<std::byte> host);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_DEVICE_CUDA_COPIER_H_
