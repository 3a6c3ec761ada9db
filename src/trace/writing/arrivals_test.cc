#include "src/trace/writing/arrivals.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace ttrace::arrivals_test {
namespace {

// One copy, on its way until it is let arrive.
class OneCopy final : public DeviceCopier {
 public:
  Result<bool> IsCapturing(uintptr_t) override { return false; }
  Result<Arrival> Copy(const std::byte*, const SpanCopy&, uintptr_t,
                       std::byte*) override {
    return Arrival{};
  }
  Result<Arrival> CopyAtOnce(const std::byte*, const SpanCopy&, uintptr_t,
                             std::byte*) override {
    return Arrival{};
  }
  Result<bool> HasArrived(Arrival) override { return arrived.load(); }
  void Forget(Arrival) override { ++forgotten; }
  bool IsIdleBy(std::chrono::steady_clock::time_point) override {
    return arrived;
  }
  std::atomic<bool> arrived = false;
  std::atomic<int> forgotten = 0;
};

// A long iteration is no device that hangs.
TEST(Arrivals, PatienceBeginsWithTheEnd) {
  const std::chrono::seconds patience(1);
  Arrivals arrivals(patience);
  OneCopy copy;
  std::thread waits([&] {
    const Status status = arrivals.Await(copy, nullptr);
    EXPECT_TRUE(status.ok());
  });
  std::this_thread::sleep_for(patience + std::chrono::milliseconds(100));
  arrivals.End();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  copy.arrived = true;
  waits.join();
  EXPECT_FALSE(arrivals.gave_up());
  EXPECT_EQ(copy.forgotten, 1);
}

TEST(Arrivals, WhoGaveUpOnceWaitsNoMoreAndTakesWhatIsThere) {
  Arrivals arrivals(std::chrono::milliseconds(20));
  OneCopy copy;
  arrivals.End();
  EXPECT_FALSE(arrivals.Await(copy, nullptr).ok());
  EXPECT_TRUE(arrivals.gave_up());
  EXPECT_EQ(copy.forgotten, 0);
  copy.arrived = true;
  EXPECT_TRUE(arrivals.Await(copy, nullptr).ok());
}

}  // namespace
}  // namespace ttrace::arrivals_test
