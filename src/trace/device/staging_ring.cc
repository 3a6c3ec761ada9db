#include "src/trace/device/staging_ring.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "src/base/check.h"

namespace ttrace {
namespace {

constexpr size_t kAlignment = alignof(std::max_align_t);

// Pages of this size, where the system has them, are there with a
// five-hundredth of the faults.
constexpr std::align_val_t kHugePage{size_t{2} << 20};

std::byte* Reserve(size_t bytes) {
  void* memory = ::operator new(bytes, kHugePage);
  static_cast<void>(::madvise(memory, bytes, MADV_HUGEPAGE));
  return static_cast<std::byte*>(memory);
}

// Whole pages: what else lies in the last one is the children's too. Its first
// one is begun by it.
void AdviseOnFork(std::byte* memory, size_t bytes, int advice) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  static_cast<void>(::madvise(memory, bytes / page * page, advice));
}

constexpr size_t RoundUp(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

// Not initialised: pages that are never used are never there.
StagingRing::StagingRing(size_t capacity)
    : capacity_(capacity), memory_(Reserve(capacity), Release{capacity}) {}

// What comes to lie there next is the children's again.
void StagingRing::Release::operator()(std::byte* memory) const {
  AdviseOnFork(memory, capacity, MADV_DOFORK);
  ::operator delete(memory, kHugePage);
}

void StagingRing::KeepFromChildren() {
  AdviseOnFork(memory_.get(), capacity_, MADV_DONTFORK);
}

std::byte* StagingRing::Take(size_t bytes) {
  const std::optional<size_t> begin = FindRoom(bytes);
  if (!begin) return nullptr;
  stretches_.push_back({*begin, *begin + bytes});
  return memory_.get() + *begin;
}

void StagingRing::GiveBackOldest() {
  TTRACE_CHECK(!stretches_.empty(), "nothing was taken");
  stretches_.pop_front();
}

std::optional<size_t> StagingRing::FindRoom(size_t bytes) const {
  const auto fits = [bytes](size_t begin, size_t end) {
    return begin <= end && bytes <= end - begin;
  };
  if (stretches_.empty()) {
    return fits(0, capacity_) ? std::optional<size_t>(0) : std::nullopt;
  }
  const size_t oldest = stretches_.front().begin;
  const size_t next = RoundUp(stretches_.back().end);
  if (stretches_.back().begin >= oldest) {
    if (fits(next, capacity_)) return next;
    // Not up to `oldest`: a full ring would look like one that goes on behind
    // its newest stretch.
    if (oldest > 0 && fits(0, oldest - 1)) return 0;
    return std::nullopt;
  }
  if (fits(next, oldest - 1)) return next;
  return std::nullopt;
}

}  // namespace ttrace
