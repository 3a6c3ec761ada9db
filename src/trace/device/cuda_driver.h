// CudaDriver: what we use of CUDA's driver, found at run time.
//
// Neither headers nor libraries of CUDA are needed to build, nor a driver to
// run: the functions below are declared by us, as the driver's binary interface
// has them since CUDA 11, under the names that its header gives them there.
//
// Thread safety: immutable; the functions may be called by any thread.

#ifndef TTRACE_SRC_TRACE_DEVICE_CUDA_DRIVER_H_
#define TTRACE_SRC_TRACE_DEVICE_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "ttrace/status.h"

namespace ttrace::cuda {

using Device = int;
using Context = struct OpaqueContext*;
using Stream = struct OpaqueStream*;
using Event = struct OpaqueEvent*;
using Address = unsigned long long;

// CUresult. Only those that mean something to us.
using Code = int;
inline constexpr Code kSuccess = 0;
inline constexpr Code kNotReady = 600;
inline constexpr Code kAlreadyRegistered = 712;
// The stream is the legacy default one, and one that waits for it is captured.
inline constexpr Code kCaptureImplicit = 906;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr int kCaptureStatusNone = 0;
inline constexpr unsigned kMemoryHost = 1;
inline constexpr unsigned kMemoryDevice = 2;

// CUDA_MEMCPY2D, second version.
struct Copy2D {
  size_t src_x = 0;
  size_t src_y = 0;
  unsigned src_type = 0;
  const void* src_host = nullptr;
  Address src_device = 0;
  void* src_array = nullptr;
  size_t src_pitch = 0;
  size_t dst_x = 0;
  size_t dst_y = 0;
  unsigned dst_type = 0;
  void* dst_host = nullptr;
  Address dst_device = 0;
  void* dst_array = nullptr;
  size_t dst_pitch = 0;
  size_t width = 0;
  size_t height = 0;
};

struct Driver {
  Code (*Init)(unsigned flags);
  Code (*GetErrorName)(Code code, const char** name);
  Code (*DeviceGet)(Device* device, int ordinal);
  Code (*PrimaryCtxRetain)(Context* context, Device device);
  Code (*PrimaryCtxRelease)(Device device);
  Code (*CtxPushCurrent)(Context context);
  Code (*CtxPopCurrent)(Context* context);
  Code (*MemAlloc)(Address* address, size_t bytes);
  Code (*MemFree)(Address address);
  Code (*MemHostRegister)(void* memory, size_t bytes, unsigned flags);
  Code (*MemHostUnregister)(void* memory);
  Code (*MemcpyDtoDAsync)(Address to, Address from, size_t bytes,
                          Stream stream);
  Code (*MemcpyDtoHAsync)(void* to, Address from, size_t bytes, Stream stream);
  Code (*Memcpy2DAsync)(const Copy2D* copy, Stream stream);
  Code (*StreamCreate)(Stream* stream, unsigned flags);
  Code (*StreamDestroy)(Stream stream);
  Code (*StreamWaitEvent)(Stream stream, Event event, unsigned flags);
  Code (*StreamQuery)(Stream stream);
  Code (*StreamIsCapturing)(Stream stream, int* status);
  Code (*ThreadExchangeStreamCaptureMode)(int* mode);
  Code (*EventCreate)(Event* event, unsigned flags);
  Code (*EventDestroy)(Event event);
  Code (*EventRecord)(Event event, Stream stream);
  Code (*EventQuery)(Event event);

  // Nothing, or an Error (kIo) that says what failed and how the driver calls
  // it.
  Status Check(Code code, const char* what) const;
};

// The driver in the library `path`, initialised; it stays loaded. Fails with
// kUnsupported where there is no such library, or none with all of these.
Result<const Driver*> LoadDriver(const std::string& path);

}  // namespace ttrace::cuda

#endif  // TTRACE_SRC_TRACE_DEVICE_CUDA_DRIVER_H_
