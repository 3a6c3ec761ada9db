#include "src/trace/device/cuda_copier.h"

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "src/trace/device/cuda_driver.h"

namespace ttrace {
namespace {

using cuda::Address;
using cuda::Driver;

constexpr std::chrono::microseconds kPollOfDevice(100);

Address At(const std::byte* address) {
  return static_cast<Address>(reinterpret_cast<uintptr_t>(address));
}

// What this thread finds as its context and its mode of capture, it finds
// again.
class Within {
 public:
  Within(const Driver& driver, cuda::Context context) : driver_(driver) {
    driver_.ThreadExchangeStreamCaptureMode(&mode_);
    entered_ = driver_.CtxPushCurrent(context);
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  ~Within() {
    if (entered_ == cuda::kSuccess) {
      cuda::Context mine = nullptr;
      driver_.CtxPopCurrent(&mine);
    }
    driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  Status status() const { return driver_.Check(entered_, "cuCtxPushCurrent"); }

 private:
  const Driver& driver_;
  int mode_ = cuda::kCaptureModeRelaxed;
  cuda::Code entered_;
};

cuda::Copy2D RowsFrom(const std::byte* data, const SpanCopy& rows) {
  cuda::Copy2D copy;
  copy.src_type = cuda::kMemoryDevice;
  copy.src_device = At(data + rows.first);
  copy.src_pitch = rows.pitch;
  copy.dst_pitch = rows.width;
  copy.width = rows.width;
  copy.height = rows.height;
  return copy;
}

class CudaCopier final : public DeviceCopier {
 public:
  CudaCopier(const Driver& driver, std::span<std::byte> host)
      : driver_(driver), host_(host) {}

  Status Open(int index) {
    TTRACE_RETURN_IF_ERROR(
        Check(driver_.DeviceGet(&device_, index), "cuDeviceGet"));
    TTRACE_RETURN_IF_ERROR(Check(driver_.PrimaryCtxRetain(&context_, device_),
                                 "cuDevicePrimaryCtxRetain"));
    retained_ = true;
    const Within within(driver_, context_);
    TTRACE_RETURN_IF_ERROR(within.status());
    TTRACE_RETURN_IF_ERROR(
        Check(driver_.StreamCreate(&side_, cuda::kStreamNonBlocking),
              "cuStreamCreate"));
    TTRACE_RETURN_IF_ERROR(
        Check(driver_.EventCreate(&staged_, cuda::kEventDisableTiming),
              "cuEventCreate"));
    TTRACE_RETURN_IF_ERROR(
        Check(driver_.MemAlloc(&staging_, host_.size()), "cuMemAlloc"));
    const cuda::Code pinned = driver_.MemHostRegister(
        host_.data(), host_.size(), cuda::kHostRegisterPortable);
    // For another device, and so for all of them.
    if (pinned == cuda::kAlreadyRegistered) return Done{};
    TTRACE_RETURN_IF_ERROR(Check(pinned, "cuMemHostRegister"));
    pinned_ = true;
    return Done{};
  }

  ~CudaCopier() override {
    if (retained_) Release();
  }

  Result<bool> IsCapturing(uintptr_t stream) override {
    const Within within(driver_, context_);
    TTRACE_RETURN_IF_ERROR(within.status());
    int status = cuda::kCaptureStatusNone;
    const cuda::Code code =
        driver_.StreamIsCapturing(StreamOf(stream), &status);
    if (code == cuda::kCaptureImplicit) return true;
    TTRACE_RETURN_IF_ERROR(Check(code, "cuStreamIsCapturing"));
    return status != cuda::kCaptureStatusNone;
  }

  Result<Arrival> Copy(const std::byte* data, const SpanCopy& rows,
                       uintptr_t stream, std::byte* to) override {
    const Within within(driver_, context_);
    TTRACE_RETURN_IF_ERROR(within.status());
    const Address staged = staging_ + static_cast<Address>(to - host_.data());
    if (rows.height == 1) {
      TTRACE_RETURN_IF_ERROR(
          Check(driver_.MemcpyDtoDAsync(staged, At(data + rows.first),
                                        rows.width, StreamOf(stream)),
                "cuMemcpyDtoDAsync"));
    } else {
      cuda::Copy2D copy = RowsFrom(data, rows);
      copy.dst_type = cuda::kMemoryDevice;
      copy.dst_device = staged;
      TTRACE_RETURN_IF_ERROR(Check(
          driver_.Memcpy2DAsync(&copy, StreamOf(stream)), "cuMemcpy2DAsync"));
    }
    TTRACE_RETURN_IF_ERROR(FollowOnSide(stream));
    TTRACE_RETURN_IF_ERROR(
        Check(driver_.MemcpyDtoHAsync(to, staged, rows.bytes(), side_),
              "cuMemcpyDtoHAsync"));
    return RecordArrival();
  }

  Result<Arrival> CopyAtOnce(const std::byte* data, const SpanCopy& rows,
                             uintptr_t stream, std::byte* to) override {
    const Within within(driver_, context_);
    TTRACE_RETURN_IF_ERROR(within.status());
    TTRACE_RETURN_IF_ERROR(FollowOnSide(stream));
    if (rows.height == 1) {
      TTRACE_RETURN_IF_ERROR(Check(
          driver_.MemcpyDtoHAsync(to, At(data + rows.first), rows.width, side_),
          "cuMemcpyDtoHAsync"));
    } else {
      cuda::Copy2D copy = RowsFrom(data, rows);
      copy.dst_type = cuda::kMemoryHost;
      copy.dst_host = to;
      TTRACE_RETURN_IF_ERROR(
          Check(driver_.Memcpy2DAsync(&copy, side_), "cuMemcpy2DAsync"));
    }
    return RecordArrival();
  }

  Result<bool> HasArrived(Arrival arrival) override {
    const Within within(driver_, context_);
    TTRACE_RETURN_IF_ERROR(within.status());
    const cuda::Code code = driver_.EventQuery(EventOf(arrival));
    if (code == cuda::kNotReady) return false;
    TTRACE_RETURN_IF_ERROR(Check(code, "a copy from the device"));
    return true;
  }

  void Forget(Arrival arrival) override {
    const std::lock_guard lock(mutex_);
    idle_events_.push_back(EventOf(arrival));
  }

  bool IsIdleBy(std::chrono::steady_clock::time_point deadline) override {
    const Within within(driver_, context_);
    cuda::Code code = cuda::kSuccess;
    // What was enqueued on the user's stream ends before what waits for it on
    // ours.
    while ((code = driver_.StreamQuery(side_)) == cuda::kNotReady &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kPollOfDevice);
    }
    return code != cuda::kNotReady;
  }

 private:
  static cuda::Stream StreamOf(uintptr_t stream) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): torch gives a number
    return reinterpret_cast<cuda::Stream>(stream);
  }
  static cuda::Event EventOf(Arrival arrival) {
    return static_cast<cuda::Event>(arrival);
  }
  Status Check(cuda::Code code, const char* what) const {
    return driver_.Check(code, what);
  }

  // What our stream runs next comes after all that is enqueued on `stream`. The
  // event may be recorded anew at once: a wait is for what was recorded when it
  // was enqueued.
  Status FollowOnSide(uintptr_t stream) {
    TTRACE_RETURN_IF_ERROR(
        Check(driver_.EventRecord(staged_, StreamOf(stream)), "cuEventRecord"));
    return Check(driver_.StreamWaitEvent(side_, staged_, 0),
                 "cuStreamWaitEvent");
  }

  Result<Arrival> RecordArrival() {
    TTRACE_ASSIGN_OR_RETURN(const cuda::Event event, TakeEvent());
    TTRACE_RETURN_IF_ERROR(
        Check(driver_.EventRecord(event, side_), "cuEventRecord"));
    return static_cast<Arrival>(event);
  }

  Result<cuda::Event> TakeEvent() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_events_.empty()) {
        cuda::Event event = idle_events_.back();
        idle_events_.pop_back();
        return event;
      }
    }
    cuda::Event event = nullptr;
    TTRACE_RETURN_IF_ERROR(
        Check(driver_.EventCreate(&event, cuda::kEventDisableTiming),
              "cuEventCreate"));
    events_.push_back(event);
    return event;
  }

  // Errors are ignored: the process may end, and with it the driver.
  void Release() {
    {
      const Within within(driver_, context_);
      for (cuda::Event event : events_) driver_.EventDestroy(event);
      if (staged_ != nullptr) driver_.EventDestroy(staged_);
      if (pinned_) driver_.MemHostUnregister(host_.data());
      if (staging_ != 0) driver_.MemFree(staging_);
      if (side_ != nullptr) driver_.StreamDestroy(side_);
    }
    driver_.PrimaryCtxRelease(device_);
  }

  const Driver& driver_;
  const std::span<std::byte> host_;
  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
  bool retained_ = false;
  bool pinned_ = false;
  Address staging_ = 0;          // as large as `host_`
  cuda::Stream side_ = nullptr;  // to the host
  cuda::Event staged_ = nullptr;
  std::vector<cuda::Event> events_;  // of arrivals, all that there are
  std::mutex mutex_;
  std::vector<cuda::Event> idle_events_;
};

}  // namespace

Result<std::unique_ptr<DeviceCopier>> OpenCudaCopier(
    const std::string& driver, int index, std::span<std::byte> host) {
  TTRACE_ASSIGN_OR_RETURN(const Driver* const loaded, cuda::LoadDriver(driver));
  auto copier = std::make_unique<CudaCopier>(*loaded, host);
  const Status opened = copier->Open(index);
  if (!opened.ok()) {
    return opened.error().WithContext("device " + std::to_string(index));
  }
  return std::unique_ptr<DeviceCopier>(std::move(copier));
}

}  // namespace ttrace
