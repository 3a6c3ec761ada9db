#include "src/trace/staging_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>

namespace ttrace {
namespace {

TEST(StagingRing, GivesAllOfItselfAndThenNothing) {
  StagingRing ring(4096);
  EXPECT_EQ(ring.Take(4097), nullptr);
  ASSERT_NE(ring.Take(4096), nullptr);
  EXPECT_EQ(ring.Take(1), nullptr);
  ring.GiveBackOldest();
  EXPECT_TRUE(ring.empty());
  EXPECT_NE(ring.Take(4096), nullptr);
}

// Every stretch is filled with its own number, which must still be there when
// it is given back.
TEST(StagingRing, StretchesThatAreOutAtOnceNeverOverlap) {
  struct Out {
    std::byte* at;
    size_t bytes;
    std::byte mark;
  };
  StagingRing ring(1000);
  std::mt19937 rng(7);
  std::deque<Out> out;
  int64_t refused = 0;
  for (int step = 0; step < 200'000; ++step) {
    if (rng() % 2 == 0) {
      const size_t bytes = rng() % 300;
      std::byte* at = ring.Take(bytes);
      refused += at == nullptr;
      if (at == nullptr) continue;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % alignof(std::max_align_t),
                0u);
      out.push_back({at, bytes, static_cast<std::byte>(step)});
      std::memset(at, static_cast<uint8_t>(step), bytes);
    } else if (!out.empty()) {
      const Out& oldest = out.front();
      ASSERT_TRUE(std::all_of(oldest.at, oldest.at + oldest.bytes,
                              [&](std::byte b) { return b == oldest.mark; }));
      ring.GiveBackOldest();
      out.pop_front();
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace ttrace
