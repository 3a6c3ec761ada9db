// DeviceCopier: copies out of the memory of a device that works behind the
// host.
//
// What a hook is handed has perhaps not been computed yet, and its memory is
// another tensor's as soon as the hook has returned. Both are settled by the
// order of the stream on which the hook runs: a copy that is enqueued there
// comes after the tensor's values and before whatever takes its memory. That
// copy stays on the device, in staging memory of its own; from there the bytes
// travel to the host while the stream goes on. Nobody waits for the device but
// who reads the bytes.
//
// Thread safety: copies are made by one thread at a time. HasArrived and Forget
// may be called by another one meanwhile.

#ifndef TTRACE_SRC_TRACE_DEVICE_DEVICE_COPIER_H_
#define TTRACE_SRC_TRACE_DEVICE_DEVICE_COPIER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/trace/device/span_copy.h"
#include "ttrace/status.h"

namespace ttrace {

enum class DeviceKind : uint8_t { kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCuda;
  int index = 0;  // as the process counts its devices
  bool operator<(const Device& other) const {
    return index < other.index || (index == other.index && kind < other.kind);
  }
};

// Where the values of a tensor will be when all has run that is enqueued so
// far. `stream`: the device's own handle; of CUDA a CUstream, 0 for the legacy
// default stream.
struct DeviceStream {
  Device device;
  uintptr_t stream = 0;
};

class DeviceCopier {
 public:
  // A copy on its way.
  using Arrival = void*;

  // REQUIRES: nothing is under way, in any copier with the same host memory
  virtual ~DeviceCopier() = default;

  // Whether what is enqueued on `stream` now would become part of a graph and
  // not run. Then nothing may be.
  virtual Result<bool> IsCapturing(uintptr_t stream) = 0;

  // Enqueues the copy of `rows`, of the tensor at `data` of the device, to `to`
  // in the host memory that the copier was opened with. On the way it takes the
  // same place of the device's staging memory, which is free if `to` is.
  // REQUIRES: !IsCapturing(stream)
  virtual Result<Arrival> Copy(const std::byte* data, const SpanCopy& rows,
                               uintptr_t stream, std::byte* to) = 0;

  // As Copy, to any memory of the host and not by way of staging memory: the
  // tensor stays as it is until it has arrived. May wait for the device.
  virtual Result<Arrival> CopyAtOnce(const std::byte* data,
                                     const SpanCopy& rows, uintptr_t stream,
                                     std::byte* to) = 0;

  virtual Result<bool> HasArrived(Arrival arrival) = 0;
  // Nobody asks for it again.
  virtual void Forget(Arrival arrival) = 0;

  // Whether all that was enqueued has ended, which is waited for until then.
  virtual bool IsIdleBy(std::chrono::steady_clock::time_point deadline) = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_DEVICE_DEVICE_COPIER_H_
