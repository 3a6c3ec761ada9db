#include "src/trace/writing/record_times.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/trace/file.h"

namespace ttrace {
namespace {

template <typename AnyClock>
int64_t MicrosecondsOf() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             AnyClock::now().time_since_epoch())
      .count();
}

// Drawn by the kernel when it starts, which is when its monotonic clock does.
std::string BootId() {
  constexpr size_t kMostBytes = 4096;  // what /proc says that it has
  auto file = File::Open("/proc/sys/kernel/random/boot_id", Links::kFollow);
  if (!file.ok()) return "";
  std::string text(kMostBytes, '\0');
  const auto got = file->ReadAt(std::as_writable_bytes(std::span(text)), 0);
  if (!got.ok()) return "";
  text.resize(*got);
  return text.substr(0, text.find('\n'));
}

}  // namespace

int64_t RecordTimes::Now() {
  return MicrosecondsOf<std::chrono::steady_clock>();
}

std::string RecordTimes::ClockJson() {
  const nlohmann::json json = {
      {"monotonic_us", Now()},
      {"realtime_us", MicrosecondsOf<std::chrono::system_clock>()},
      {"boot", BootId()}};
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

void RecordTimes::Add(int64_t sequence, int64_t time_us) {
  if (steps_.empty()) {
    first_ = sequence;
    begin_us_ = last_us_ = time_us;
  }
  steps_.push_back(time_us - last_us_);
  last_us_ = time_us;
}

std::string RecordTimes::TakeJson() {
  std::string text = "{\"first\":" + std::to_string(first_) +
                     ",\"begin_us\":" + std::to_string(begin_us_) +
                     ",\"steps_us\":[";
  for (size_t i = 1; i < steps_.size(); ++i) {
    if (i > 1) text += ',';
    text += std::to_string(steps_[i]);
  }
  steps_.clear();
  return text + "]}";
}

}  // namespace ttrace
