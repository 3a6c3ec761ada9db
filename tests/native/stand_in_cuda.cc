// A stand-in for CUDA's driver: a library with the functions that
// src/trace/device/cuda_driver.h finds in the real one, and streams that really
// run behind their callers, each on a thread of its own and with delays.
//
// It is stricter than a device where that finds mistakes. Its addresses are
// none of the process's, so that who reads one dies. What is enqueued on a
// stream that is captured, or unsafe while another thread captures, is counted
// as a violation. A call without a current context is an error. What it does
// not have: the legacy stream waits for no other.
//
// Functions that begin with standIn are for tests.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/trace/device/cuda_driver.h"

using ttrace::cuda::Address;
using ttrace::cuda::Code;
using ttrace::cuda::Copy2D;

namespace {

constexpr int kDevices = 2;
constexpr Code kInvalidValue = 1;
constexpr Code kOutOfMemory = 2;
constexpr Code kInvalidContext = 201;
constexpr Code kIllegalAddress = 700;
constexpr Code kHostMemoryNotRegistered = 713;
constexpr Code kCaptureUnsupported = 900;
constexpr int kCaptureModeGlobal = 0;

struct Op {
  std::function<bool()> ready;  // asked with the lock
  std::function<void()> run;    // without
  std::function<void()> done;   // with
};

// Memory of the device.
struct Block {
  std::vector<std::byte> own;
  std::byte* data = nullptr;
  size_t bytes = 0;
};

struct Stream {
  std::deque<Op> ops;  // the first may be running
  bool waits_for_legacy = true;
  bool held = false;
  bool captured = false;
  std::thread thread;
};

// What it was last recorded as: a wait is for that, whatever is recorded later.
struct Event {
  std::shared_ptr<bool> reached;
};

thread_local std::vector<intptr_t> t_contexts;
thread_local int t_mode = kCaptureModeGlobal;

class StandIn {
 public:
  StandIn() { legacy_ = NewStream(); }

  std::mutex mutex;
  std::condition_variable changed;
  std::map<Address, Block> memory;
  std::map<const std::byte*, size_t> registered;
  std::map<std::string, Code> failing;
  int retained[kDevices] = {};
  long violations = 0;
  long pageable_copies = 0;

  Stream* NewStream() {
    auto* stream = new Stream();
    streams_.insert(stream);
    stream->thread = std::thread([this, stream] { Run(stream); });
    stream->thread.detach();
    return stream;
  }
  void DropStream(Stream* stream) { streams_.erase(stream); }
  Stream* Of(void* handle) {
    return handle == nullptr ? legacy_ : static_cast<Stream*>(handle);
  }
  Stream* legacy() { return legacy_; }

  bool AnyCaptured() const {
    return std::any_of(streams_.begin(), streams_.end(),
                       [](const Stream* stream) { return stream->captured; });
  }
  bool LegacyIsImplicit() const {
    return std::any_of(streams_.begin(), streams_.end(),
                       [](const Stream* stream) {
                         return stream->captured && stream->waits_for_legacy;
                       });
  }

  // Memory of the device, or null.
  std::byte* At(Address address, size_t bytes) {
    auto after = memory.upper_bound(address);
    if (after == memory.begin()) return nullptr;
    auto& [begin, block] = *--after;
    const size_t offset = address - begin;
    return offset <= block.bytes && bytes <= block.bytes - offset
               ? block.data + offset
               : nullptr;
  }

  bool IsRegistered(const void* host, size_t bytes) const {
    const auto* begin = static_cast<const std::byte*>(host);
    auto after = registered.upper_bound(begin);
    if (after == registered.begin()) return false;
    const auto& [first, size] = *--after;
    return begin + bytes <= first + size;
  }

  Code Enqueue(Stream* stream, Op op) {
    if (stream->captured || (stream == legacy_ && LegacyIsImplicit())) {
      ++violations;
      return kCaptureUnsupported;
    }
    stream->ops.push_back(std::move(op));
    changed.notify_all();
    return 0;
  }

 private:
  void Run(Stream* stream) {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [stream] {
        return !stream->ops.empty() && !stream->held &&
               (!stream->ops.front().ready || stream->ops.front().ready());
      });
      // Now and then something takes longer.
      delays_ = delays_ * 1664525 + 1013904223;
      const std::chrono::microseconds delay(
          delays_ >> 29 == 0 ? delays_ >> 8 & 1023 : 0);
      Op& op = stream->ops.front();
      lock.unlock();
      if (delay.count() > 0) std::this_thread::sleep_for(delay);
      if (op.run) op.run();
      lock.lock();
      if (op.done) op.done();
      stream->ops.pop_front();
      changed.notify_all();
    }
  }

  uint32_t delays_ = 1;
  std::set<Stream*> streams_;
  Stream* legacy_ = nullptr;
};

// Never destroyed: its threads run until the process has ended.
StandIn& Here() {
  static StandIn& stand_in = *new StandIn();
  return stand_in;
}

// What every call but a few begins with.
Code Begin(const char* name, bool unsafe) {
  StandIn& here = Here();
  const auto failing = here.failing.find(name);
  if (failing != here.failing.end()) return failing->second;
  if (t_contexts.empty()) return kInvalidContext;
  if (unsafe && t_mode == kCaptureModeGlobal && here.AnyCaptured()) {
    ++here.violations;
    return kCaptureUnsupported;
  }
  return 0;
}

}  // namespace

#define STAND_IN extern "C" __attribute__((visibility("default")))
#define BEGIN(name, unsafe)               \
  StandIn& here = Here();                 \
  const std::lock_guard lock(here.mutex); \
  if (const Code code = Begin(name, unsafe); code != 0) return code

STAND_IN Code cuInit(unsigned) { return 0; }
STAND_IN Code cuGetErrorName(Code code, const char** name) {
  *name = code == kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                    : "CUDA_ERROR_OF_THE_STAND_IN";
  return 0;
}
STAND_IN Code cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= kDevices) return 101;
  *device = ordinal;
  return 0;
}
STAND_IN Code cuDevicePrimaryCtxRetain(void** context, int device) {
  const std::lock_guard lock(Here().mutex);
  ++Here().retained[device];
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(device + 1));
  return 0;
}
STAND_IN Code cuDevicePrimaryCtxRelease_v2(int device) {
  const std::lock_guard lock(Here().mutex);
  --Here().retained[device];
  return 0;
}
STAND_IN Code cuCtxPushCurrent_v2(void* context) {
  t_contexts.push_back(reinterpret_cast<intptr_t>(context));
  return 0;
}
STAND_IN Code cuCtxPopCurrent_v2(void** context) {
  if (t_contexts.empty()) return kInvalidContext;
  *context = reinterpret_cast<void*>(t_contexts.back());
  t_contexts.pop_back();
  return 0;
}
STAND_IN Code cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, t_mode);
  return 0;
}

STAND_IN Code cuMemAlloc_v2(Address* address, size_t bytes) {
  BEGIN("cuMemAlloc", true);
  // No process has anything there.
  static Address next = Address{0x00f1} << 48;
  *address = next;
  Block& block = here.memory[next];
  block.own.assign(bytes, std::byte{0xdb});
  block.data = block.own.data();
  block.bytes = bytes;
  next += (bytes / 4096 + 2) * 4096;
  return 0;
}
STAND_IN Code cuMemFree_v2(Address address) {
  BEGIN("cuMemFree", true);
  return here.memory.erase(address) == 1 ? 0 : kInvalidValue;
}
STAND_IN Code cuMemHostRegister_v2(void* host, size_t bytes, unsigned) {
  BEGIN("cuMemHostRegister", true);
  if (here.IsRegistered(host, 1)) return ttrace::cuda::kAlreadyRegistered;
  here.registered[static_cast<std::byte*>(host)] = bytes;
  return 0;
}
STAND_IN Code cuMemHostUnregister(void* host) {
  BEGIN("cuMemHostUnregister", true);
  return here.registered.erase(static_cast<std::byte*>(host)) == 1
             ? 0
             : kHostMemoryNotRegistered;
}

STAND_IN Code cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes,
                                   void* stream) {
  BEGIN("cuMemcpyDtoDAsync", false);
  std::byte* const target = here.At(to, bytes);
  const std::byte* const source = here.At(from, bytes);
  if (target == nullptr || source == nullptr) return kInvalidValue;
  return here.Enqueue(
      here.Of(stream),
      {nullptr, [=] { std::memmove(target, source, bytes); }, nullptr});
}
STAND_IN Code cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes,
                                   void* stream) {
  BEGIN("cuMemcpyDtoHAsync", false);
  const std::byte* const source = here.At(from, bytes);
  if (source == nullptr) return kInvalidValue;
  if (!here.IsRegistered(to, bytes)) ++here.pageable_copies;
  return here.Enqueue(
      here.Of(stream),
      {nullptr, [=] { std::memcpy(to, source, bytes); }, nullptr});
}
STAND_IN Code cuMemcpy2DAsync_v2(const Copy2D* copy, void* stream) {
  BEGIN("cuMemcpy2DAsync", false);
  if (copy->src_type != ttrace::cuda::kMemoryDevice || copy->height == 0 ||
      copy->width > copy->src_pitch || copy->width > copy->dst_pitch) {
    return kInvalidValue;
  }
  const auto span = [copy](size_t pitch) {
    return (copy->height - 1) * pitch + copy->width;
  };
  const std::byte* const source =
      here.At(copy->src_device, span(copy->src_pitch));
  std::byte* target = static_cast<std::byte*>(copy->dst_host);
  if (copy->dst_type == ttrace::cuda::kMemoryDevice) {
    target = here.At(copy->dst_device, span(copy->dst_pitch));
  } else if (!here.IsRegistered(target, span(copy->dst_pitch))) {
    ++here.pageable_copies;
  }
  if (source == nullptr || target == nullptr) return kInvalidValue;
  return here.Enqueue(here.Of(stream),
                      {nullptr,
                       [=, c = *copy] {
                         for (size_t i = 0; i < c.height; ++i) {
                           std::memcpy(target + i * c.dst_pitch,
                                       source + i * c.src_pitch, c.width);
                         }
                       },
                       nullptr});
}
// As the driver with memory that is not registered: it reads the source at
// once.
STAND_IN Code cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes,
                                   void* stream) {
  BEGIN("cuMemcpyHtoDAsync", false);
  std::byte* const target = here.At(to, bytes);
  if (target == nullptr) return kInvalidValue;
  const auto* first = static_cast<const std::byte*>(from);
  const auto copy =
      std::make_shared<std::vector<std::byte>>(first, first + bytes);
  return here.Enqueue(
      here.Of(stream),
      {nullptr, [=] { std::memcpy(target, copy->data(), bytes); }, nullptr});
}

STAND_IN Code cuStreamCreate(void** stream, unsigned flags) {
  BEGIN("cuStreamCreate", true);
  Stream* const made = here.NewStream();
  made->waits_for_legacy = (flags & ttrace::cuda::kStreamNonBlocking) == 0;
  *stream = made;
  return 0;
}
STAND_IN Code cuStreamDestroy_v2(void* stream) {
  BEGIN("cuStreamDestroy", true);
  here.DropStream(here.Of(stream));
  return 0;
}
STAND_IN Code cuStreamWaitEvent(void* stream, void* event, unsigned) {
  BEGIN("cuStreamWaitEvent", false);
  const auto reached = static_cast<const Event*>(event)->reached;
  return here.Enqueue(
      here.Of(stream),
      {[=] { return reached == nullptr || *reached; }, nullptr, nullptr});
}
STAND_IN Code cuStreamQuery(void* stream) {
  BEGIN("cuStreamQuery", true);
  return here.Of(stream)->ops.empty() ? 0 : ttrace::cuda::kNotReady;
}
STAND_IN Code cuStreamIsCapturing(void* stream, int* status) {
  BEGIN("cuStreamIsCapturing", false);
  if (stream == nullptr && here.LegacyIsImplicit()) {
    return ttrace::cuda::kCaptureImplicit;
  }
  *status = here.Of(stream)->captured ? 1 : 0;
  return 0;
}
STAND_IN Code cuEventCreate(void** event, unsigned) {
  BEGIN("cuEventCreate", false);
  *event = new Event();
  return 0;
}
STAND_IN Code cuEventDestroy_v2(void* event) {
  BEGIN("cuEventDestroy", false);
  delete static_cast<Event*>(event);
  return 0;
}
STAND_IN Code cuEventRecord(void* event, void* stream) {
  BEGIN("cuEventRecord", false);
  const auto reached = std::make_shared<bool>(false);
  const Code code = here.Enqueue(here.Of(stream),
                                 {nullptr, nullptr, [=] { *reached = true; }});
  if (code == 0) static_cast<Event*>(event)->reached = reached;
  return code;
}
STAND_IN Code cuEventQuery(void* event) {
  BEGIN("cuEventQuery", true);
  const auto& reached = static_cast<const Event*>(event)->reached;
  return reached == nullptr || *reached ? 0 : ttrace::cuda::kNotReady;
}

// A stream that is held runs nothing.
STAND_IN void standInHold(void* stream, int held) {
  const std::lock_guard lock(Here().mutex);
  Here().Of(stream)->held = held != 0;
  Here().changed.notify_all();
}
STAND_IN void standInCapture(void* stream, int captured) {
  const std::lock_guard lock(Here().mutex);
  Here().Of(stream)->captured = captured != 0;
}
// Memory of the process, as if it were the device's under the same address: for
// tensors of a torch that knows no device.
STAND_IN void standInAdopt(void* memory, size_t bytes) {
  const std::lock_guard lock(Here().mutex);
  const auto address = reinterpret_cast<uintptr_t>(memory);
  Here().memory[address] = {{}, static_cast<std::byte*>(memory), bytes};
}
// What the function answers from now on; 0: what it does.
STAND_IN void standInFail(const char* function, Code code) {
  const std::lock_guard lock(Here().mutex);
  if (code == 0) {
    Here().failing.erase(function);
  } else {
    Here().failing[function] = code;
  }
}
// Host memory that is registered, or null.
STAND_IN const void* standInPinned() {
  const std::lock_guard lock(Here().mutex);
  const auto& all = Here().registered;
  return all.empty() ? nullptr : all.begin()->first;
}
STAND_IN long standInCount(const char* what) {
  const std::lock_guard lock(Here().mutex);
  const std::string name = what;
  if (name == "violations") return Here().violations;
  if (name == "pageable copies") return Here().pageable_copies;
  if (name == "memory") return static_cast<long>(Here().memory.size());
  if (name == "registered") return static_cast<long>(Here().registered.size());
  if (name == "retained") return Here().retained[0] + Here().retained[1];
  if (name == "contexts") return static_cast<long>(t_contexts.size());
  if (name == "mode") return t_mode;
  return -1;
}
