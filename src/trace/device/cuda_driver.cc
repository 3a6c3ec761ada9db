#include "src/trace/device/cuda_driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

namespace ttrace::cuda {
namespace {

class Library {
 public:
  explicit Library(const std::string& path)
      : path_(path), handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) Miss(::dlerror());
  }

  template <typename Function>
  void Find(const char* name, Function* function) {
    if (handle_ == nullptr) return;
    *function = reinterpret_cast<Function>(::dlsym(handle_, name));
    if (*function == nullptr) Miss(path_ + " has no " + name);
  }

  const std::string& missing() const { return missing_; }

 private:
  void Miss(const std::string& what) {
    if (missing_.empty()) missing_ = what;
  }
  std::string path_;
  void* handle_;
  std::string missing_;
};

Result<std::unique_ptr<Driver>> Load(const std::string& path) {
  Library library(path);
  auto driver = std::make_unique<Driver>();
  library.Find("cuInit", &driver->Init);
  library.Find("cuGetErrorName", &driver->GetErrorName);
  library.Find("cuDeviceGet", &driver->DeviceGet);
  library.Find("cuDevicePrimaryCtxRetain", &driver->PrimaryCtxRetain);
  library.Find("cuDevicePrimaryCtxRelease_v2", &driver->PrimaryCtxRelease);
  library.Find("cuCtxPushCurrent_v2", &driver->CtxPushCurrent);
  library.Find("cuCtxPopCurrent_v2", &driver->CtxPopCurrent);
  library.Find("cuMemAlloc_v2", &driver->MemAlloc);
  library.Find("cuMemFree_v2", &driver->MemFree);
  library.Find("cuMemHostRegister_v2", &driver->MemHostRegister);
  library.Find("cuMemHostUnregister", &driver->MemHostUnregister);
  library.Find("cuMemcpyDtoDAsync_v2", &driver->MemcpyDtoDAsync);
  library.Find("cuMemcpyDtoHAsync_v2", &driver->MemcpyDtoHAsync);
  library.Find("cuMemcpy2DAsync_v2", &driver->Memcpy2DAsync);
  library.Find("cuStreamCreate", &driver->StreamCreate);
  library.Find("cuStreamDestroy_v2", &driver->StreamDestroy);
  library.Find("cuStreamWaitEvent", &driver->StreamWaitEvent);
  library.Find("cuStreamQuery", &driver->StreamQuery);
  library.Find("cuStreamIsCapturing", &driver->StreamIsCapturing);
  library.Find("cuThreadExchangeStreamCaptureMode",
               &driver->ThreadExchangeStreamCaptureMode);
  library.Find("cuEventCreate", &driver->EventCreate);
  library.Find("cuEventDestroy_v2", &driver->EventDestroy);
  library.Find("cuEventRecord", &driver->EventRecord);
  library.Find("cuEventQuery", &driver->EventQuery);
  if (!library.missing().empty()) {
    return Error(ErrorCode::kUnsupported, library.missing());
  }
  TTRACE_RETURN_IF_ERROR(driver->Check(driver->Init(0), "cuInit"));
  return driver;
}

}  // namespace

Status Driver::Check(Code code, const char* what) const {
  if (code == kSuccess) return Done{};
  const char* name = nullptr;
  if (GetErrorName(code, &name) != kSuccess || name == nullptr) name = "?";
  return Error(ErrorCode::kIo, std::string(what) + ": " + name + " (" +
                                   std::to_string(code) + ")");
}

Result<const Driver*> LoadDriver(const std::string& path) {
  static std::mutex mutex;
  static auto& loaded = *new std::map<std::string, std::unique_ptr<Driver>>();
  const std::lock_guard lock(mutex);
  const auto found = loaded.find(path);
  if (found != loaded.end()) return found->second.get();
  TTRACE_ASSIGN_OR_RETURN(std::unique_ptr<Driver> driver, Load(path));
  return loaded.emplace(path, std::move(driver)).first->second.get();
}

}  // namespace ttrace::cuda
