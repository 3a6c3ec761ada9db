#include "src/trace/device/staging_ring.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <set>
#include <span>
#include <vector>

namespace ttrace::staging_ring_test {
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

// Whether a forked child can read the first and the last byte of `memory`. The
// system reads them for it: an address that it has not is an error.
bool ChildHas(std::span<const std::byte> memory) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool has = ::write(ends[1], &memory.front(), 1) == 1 &&
                     ::write(ends[1], &memory.back(), 1) == 1;
    ::_exit(has ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  ::close(ends[0]);
  ::close(ends[1]);
  return status != 0;
}

TEST(StagingRing, IsKeptFromChildrenThatAreForkedLater) {
  StagingRing ring(64 * 1024);
  std::byte* const all = ring.Take(ring.capacity());
  std::memset(all, 7, ring.capacity());
  EXPECT_EQ(ring.memory().data(), all);
  EXPECT_TRUE(ChildHas(ring.memory()));
  ring.KeepFromChildren();
  EXPECT_FALSE(ChildHas(ring.memory()));
  EXPECT_EQ(ring.memory().back(), std::byte{7}) << "it is still the parent's";
}

// Children would crash where memory that they have lies in its place.
TEST(StagingRing, WhatComesAfterItInItsMemoryIsTheChildrens) {
  std::vector<const std::byte*> places;
  for (int i = 0; i < 4; ++i) {
    StagingRing ring(64 * 1024);
    std::byte* const all = ring.Take(ring.capacity());
    std::memset(all, 7, ring.capacity());
    EXPECT_TRUE(ChildHas(ring.memory())) << i;
    ring.KeepFromChildren();
    places.push_back(all);
  }
  if (std::set(places.begin(), places.end()).size() == places.size()) {
    GTEST_SKIP() << "no memory was given out again";
  }
}

}  // namespace
}  // namespace ttrace::staging_ring_test
