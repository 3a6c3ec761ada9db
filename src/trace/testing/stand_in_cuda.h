// For tests: the stand-in for CUDA's driver (tests/native/stand_in_cuda.cc), as
// a program uses it that trains on a device.
//
// Thread safety: one thread at a time.

#ifndef TTRACE_SRC_TRACE_TESTING_STAND_IN_CUDA_H_
#define TTRACE_SRC_TRACE_TESTING_STAND_IN_CUDA_H_

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/trace/device/cuda_driver.h"
#include "src/trace/device/device_copier.h"

namespace ttrace {

class StandInCuda {
 public:
  StandInCuda() : library_(::dlopen(TTRACE_STAND_IN_CUDA, RTLD_NOW)) {
    if (library_ == nullptr) ADD_FAILURE() << ::dlerror();
    void* context = nullptr;
    Call<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
    Call<int(void*)>("cuCtxPushCurrent_v2")(context);
  }
  StandInCuda(const StandInCuda&) = delete;
  StandInCuda& operator=(const StandInCuda&) = delete;
  ~StandInCuda() {
    void* context = nullptr;
    Call<int(void**)>("cuCtxPopCurrent_v2")(&context);
    Call<int(int)>("cuDevicePrimaryCtxRelease_v2")(0);
  }

  static std::string path() { return TTRACE_STAND_IN_CUDA; }

  uintptr_t NewStream() {
    void* stream = nullptr;
    Call<int(void**, unsigned)>("cuStreamCreate")(&stream, 0);
    return reinterpret_cast<uintptr_t>(stream);
  }

  // An address of the device, which the host cannot read.
  std::byte* Allocate(size_t bytes) {
    cuda::Address address = 0;
    Call<int(cuda::Address*, size_t)>("cuMemAlloc_v2")(&address, bytes);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): of another memory
    return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address));
  }
  void Free(std::byte* memory) {
    Call<int(cuda::Address)>("cuMemFree_v2")(AddressOf(memory));
  }

  // Enqueued: the device's memory has these values when the stream is there.
  void Write(std::byte* memory, std::span<const std::byte> values,
             uintptr_t stream) {
    Call<int(cuda::Address, const void*, size_t, void*)>(
        "cuMemcpyHtoDAsync_v2")(AddressOf(memory), values.data(), values.size(),
                                Handle(stream));
  }

  void Hold(uintptr_t stream) { SetHeld(stream, 1); }
  void LetGo(uintptr_t stream) { SetHeld(stream, 0); }
  void Capture(uintptr_t stream, bool captured) {
    Call<void(void*, int)>("standInCapture")(Handle(stream), captured ? 1 : 0);
  }
  void Fail(const char* function, cuda::Code code) {
    Call<void(const char*, int)>("standInFail")(function, code);
  }
  const void* Pinned() { return Call<const void*()>("standInPinned")(); }
  long Count(const char* what) {
    return Call<long(const char*)>("standInCount")(what);
  }

 private:
  static cuda::Address AddressOf(std::byte* memory) {
    return reinterpret_cast<uintptr_t>(memory);
  }
  static void* Handle(uintptr_t stream) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): as torch gives them
    return reinterpret_cast<void*>(stream);
  }
  void SetHeld(uintptr_t stream, int held) {
    Call<void(void*, int)>("standInHold")(Handle(stream), held);
  }
  template <typename Function>
  Function* Call(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }

  void* library_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_TESTING_STAND_IN_CUDA_H_
