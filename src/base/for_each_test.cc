#include "src/base/for_each.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace ttrace::for_each_test {
namespace {

Error ErrorOf(size_t i) {
  return Error(ErrorCode::kCorrupt, std::to_string(i));
}

TEST(ForEach, DoesEachPartOnceAndGivesTheErrorOfTheFirst) {
  for (const int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> calls(1000);
    const auto work = [&](size_t i) -> Status {
      ++calls[i];
      if (i == 400 || i == 401 || i == 999) return ErrorOf(i);
      return Done{};
    };
    const Status of_parts = ForEach(
        threads, 1, [&](size_t) { return ForEachPart(calls.size(), work); });
    ASSERT_FALSE(of_parts.ok());
    EXPECT_EQ(of_parts.error().message(), "400") << threads;
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_LE(calls[i], 1);
      EXPECT_TRUE(calls[i] == 1 || i > 400) << i;
      calls[i] = 0;
    }
    const Status of_all = ForEach(threads, calls.size(), work);
    ASSERT_FALSE(of_all.ok());
    EXPECT_EQ(of_all.error().message(), "400");
    for (const auto& n : calls) EXPECT_EQ(n, 1);
  }
}

void Rest() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// Until `flag` is set, or for so long that no machine needs it.
bool Comes(const std::atomic<bool>& flag) {
  for (int i = 0; i < 20'000 && !flag; ++i) Rest();
  return flag;
}

TEST(ForEach, PartsOfOnePieceOfWorkAreDoneByOtherThreadsToo) {
  std::atomic<int> inside = 0;
  std::atomic<bool> met = false;
  const Status status = ForEach(2, 1, [&](size_t) {
    return ForEachPart(2, [&](size_t) -> Status {
      if (++inside == 2) met = true;
      Comes(met);
      --inside;
      return Done{};
    });
  });
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(met);
}

TEST(ForEach, TheErrorOfTheFirstPartStandsWhicheverComesLast) {
  std::atomic<bool> begun = false;
  std::atomic<bool> failed = false;
  const Status status = ForEach(2, 1, [&](size_t) {
    return ForEachPart(2, [&](size_t i) -> Status {
      if (i == 0) {
        EXPECT_TRUE(Comes(begun));
        failed = true;
      } else {
        begun = true;
        EXPECT_TRUE(Comes(failed));
        for (int n = 0; n < 20; ++n) Rest();
      }
      return ErrorOf(i);
    });
  });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message(), "0");
}

TEST(ForEach, WhoeverAsksForNoThreadsGetsNone) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  const auto note = [&](size_t) -> Status {
    Rest();
    const std::lock_guard<std::mutex> lock(mutex);
    threads.insert(std::this_thread::get_id());
    return Done{};
  };
  EXPECT_TRUE(ForEachPart(50, note).ok());
  EXPECT_TRUE(ForEach(4, 8, [](size_t) -> Status { return Done{}; }).ok());
  EXPECT_TRUE(ForEachPart(50, note).ok()) << "nor after others did";
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
}

// It would hold what it needs for both.
TEST(ForEach, NoThreadBeginsOtherWorkWhileItWaitsForParts) {
  thread_local int depth = 0;
  std::atomic<bool> deep = false;
  const Status status = ForEach(3, 60, [&](size_t) -> Status {
    if (++depth > 1) deep = true;
    const Status parts = ForEachPart(5, [](size_t i) -> Status {
      if (i % 2 == 0) Rest();
      return Done{};
    });
    --depth;
    return parts;
  });
  EXPECT_TRUE(status.ok());
  EXPECT_FALSE(deep);
}

}  // namespace
}  // namespace ttrace::for_each_test
