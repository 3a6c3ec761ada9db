// What is recorded of a device's memory, and what its owner notices of that.
// The device is a stand-in: tests/native/stand_in_cuda.cc.

#include "src/trace/device/cuda_copier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/trace/strided_gather.h"
#include "src/trace/testing/scratch_trace.h"
#include "src/trace/testing/stand_in_cuda.h"
#include "src/trace/writing/writer_thread.h"
#include "src/trace/writing/writing_queue.h"

namespace ttrace::cuda_copier_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kRing = 16 * 1024;
constexpr Device kFirst = {DeviceKind::kCuda, 0};
constexpr cuda::Code kIllegalAddress = 700;
constexpr cuda::Code kOutOfMemory = 2;

std::string Name(size_t i) {
  return std::string("x").append(std::to_string(i));
}

std::vector<float> Random(std::mt19937& rng, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng() % 100'000);
  return values;
}

std::span<const std::byte> Bytes(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

class CudaCopierTest : public testing::Test {
 protected:
  CudaCopierTest() { OrDie(CreateTraceFolder(folder_.path(), "{}", false)); }

  // Nothing that the user's thread has is changed, nothing is left over.
  void TearDown() override {
    sink_.reset();
    EXPECT_EQ(cuda_.Count("contexts"), 1);
    EXPECT_EQ(cuda_.Count("mode"), 0);
    EXPECT_EQ(cuda_.Count("violations"), violations_);
    if (hangs_) return;
    EXPECT_EQ(cuda_.Count("registered"), registered_);
    EXPECT_EQ(cuda_.Count("retained"), retained_);
  }

  void OpenSink(std::chrono::milliseconds patience = kPatience) {
    sink_ = WriteOnThread(OpenRank(folder_.path(), 0, 1), kRing, patience);
    OrDie(sink_->OpenDevice(kFirst, StandInCuda::path()));
  }

  Result<bool> Append(const std::string& fqn, const std::byte* memory,
                      const Shape& shape, const std::vector<int64_t>& strides,
                      uintptr_t stream) {
    return sink_->AppendFrom({kFirst, stream},
                             PlainSpec(fqn, DType::kF32, shape),
                             RealOccurrence(), {memory, strides});
  }
  Result<bool> AppendRow(const std::string& fqn, const std::byte* memory,
                         size_t count, uintptr_t stream) {
    return Append(fqn, memory, {static_cast<int64_t>(count)}, {1}, stream);
  }

  std::map<std::string, std::vector<float>> Recorded() {
    std::map<std::string, std::vector<float>> out;
    const auto trace = OrDie(Trace::Open(folder_.path()));
    for (const Record& record : trace->records()) {
      out[std::string(record.id().fqn)] = ReadFloats(*trace, record);
    }
    return out;
  }

  const ScratchFolder folder_;
  StandInCuda cuda_;
  const long violations_ = cuda_.Count("violations");
  const long registered_ = cuda_.Count("registered");
  const long retained_ = cuda_.Count("retained");
  bool hangs_ = false;
  std::unique_ptr<Sink> sink_;
};

// As an allocator does it: the next tensor lies where the last one was, and is
// computed at once. Sizes on both sides of half of the ring, rows, slices and
// other orders of dimensions, two streams.
TEST_F(CudaCopierTest, RecordsWhatTheStreamHadWhenTheHookRan) {
  OpenSink();
  const uintptr_t streams[] = {cuda_.NewStream(), 0};
  std::byte* const memory[] = {cuda_.Allocate(64 * 1024),
                               cuda_.Allocate(64 * 1024)};
  const std::vector<float> poison(16 * 1024, -1.0F);
  std::map<std::string, std::vector<float>> expected;
  std::mt19937 rng(7);
  for (size_t i = 0; i < 300; ++i) {
    const size_t on = rng() % 2;
    const auto rows = static_cast<int64_t>(1 + rng() % 60);
    const auto columns = static_cast<int64_t>(1 + rng() % 60);
    const auto width = columns + static_cast<int64_t>(rng() % 2 * 50);
    const std::vector<float> values =
        Random(rng, static_cast<size_t>(rows * width));
    Shape shape = {rows, columns};
    std::vector<int64_t> strides = {width, 1};
    if (i % 3 == 0) {
      shape = {columns, rows};
      strides = {1, width};
    }
    // The other way round, from the last row on.
    const auto back = i % 5 == 0 ? static_cast<size_t>((rows - 1) * width) : 0;
    if (back > 0) strides[i % 3 == 0 ? 1 : 0] = -width;
    const size_t first = back * sizeof(float);
    cuda_.Write(memory[on], Bytes(values), streams[on]);
    ASSERT_TRUE(OrDie(
        Append(Name(i), memory[on] + first, shape, strides, streams[on])));
    cuda_.Write(memory[on], Bytes(poison), streams[on]);
    StridedGather gather(Bytes(values).data() + first, shape, strides,
                         sizeof(float));
    auto& dense = expected[Name(i)];
    for (auto tile = gather.Next(); !tile.empty(); tile = gather.Next()) {
      const auto* begin = reinterpret_cast<const float*>(tile.data());
      dense.insert(dense.end(), begin, begin + tile.size() / sizeof(float));
    }
  }
  OrDie(sink_->Seal(0, "real"));
  OrDie(sink_->Close(true, ""));
  EXPECT_TRUE(Recorded() == expected);
}

// With tensors of the host between them, in the order of the calls.
TEST_F(CudaCopierTest, TheOrderIsThatOfTheCalls) {
  OpenSink();
  const uintptr_t stream = cuda_.NewStream();
  std::byte* const memory = cuda_.Allocate(400);
  const long pageable = cuda_.Count("pageable copies");
  cuda_.Hold(stream);
  std::vector<std::string> names;
  for (size_t i = 0; i < 20; ++i) {
    names.push_back(Name(i));
    const std::vector<float> values(i + 1, static_cast<float>(i));
    if (i % 2 == 0) {
      OrDie(AppendFloats(*sink_, Name(i), values));
      continue;
    }
    cuda_.Write(memory, Bytes(values), stream);
    ASSERT_TRUE(OrDie(AppendRow(Name(i), memory, values.size(), stream)));
  }
  // No values, and no memory.
  ASSERT_TRUE(OrDie(AppendRow("empty", nullptr, 0, stream)));
  names.emplace_back("empty");
  cuda_.LetGo(stream);
  OrDie(sink_->Flush());
  const auto trace = OrDie(Trace::Open(folder_.path()));
  std::vector<std::string> found;
  for (const Record& record : trace->records()) {
    found.emplace_back(record.id().fqn);
  }
  EXPECT_EQ(found, names);
  EXPECT_EQ(cuda_.Count("pageable copies"), pageable)
      << "for which a device would wait";
}

TEST_F(CudaCopierTest, AppendWaitsForTheDeviceOnlyWhereTheRingIsFull) {
  OpenSink();
  const uintptr_t stream = cuda_.NewStream();
  std::byte* const memory = cuda_.Allocate(kRing);
  cuda_.Hold(stream);
  const size_t half = kRing / 2 / sizeof(float) - 16;
  // Had one of these waited, it would wait for ever.
  ASSERT_TRUE(OrDie(AppendRow("a", memory, half, stream)));
  ASSERT_TRUE(OrDie(AppendRow("b", memory, half, stream)));
  const long blocks = cuda_.Count("memory");
  std::atomic<bool> third = false;
  std::thread caller([&] {
    EXPECT_TRUE(OrDie(AppendRow("c", memory, half, stream)));
    third = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(third);
  cuda_.LetGo(stream);
  caller.join();
  EXPECT_EQ(cuda_.Count("memory"), blocks) << "no more than the ring";
  OrDie(sink_->Close(true, ""));
  EXPECT_EQ(Recorded().size(), 3u);
}

TEST_F(CudaCopierTest, NoMoreAreOnTheirWayThanThereAreEventsFor) {
  OpenSink();
  const uintptr_t stream = cuda_.NewStream();
  std::byte* const memory = cuda_.Allocate(64);
  cuda_.Hold(stream);
  std::atomic<int> appended = 0;
  std::thread caller([&] {
    // 16 bytes of the ring each, which has room for a few more.
    sink_ = WriteOnThread(OpenRank(folder_ / "many", 0, 1),
                          size_t{16} * (kMostOnTheirWay + 100));
    OrDie(sink_->OpenDevice(kFirst, StandInCuda::path()));
    for (int i = 0; i < kMostOnTheirWay + 50; ++i) {
      EXPECT_TRUE(OrDie(AppendRow("x", memory, 1, stream)));
      ++appended;
    }
  });
  while (appended < kMostOnTheirWay) std::this_thread::yield();
  for (int i = 0; i < 50 && appended == kMostOnTheirWay; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(appended, kMostOnTheirWay);
  cuda_.LetGo(stream);
  caller.join();
}

TEST_F(CudaCopierTest, WhileTheStreamIsCapturedNothingIsEnqueuedOrRecorded) {
  OpenSink();
  const uintptr_t stream = cuda_.NewStream();
  std::byte* const memory = cuda_.Allocate(100 * sizeof(float));
  const std::vector<float> values(100, 2.0F);
  cuda_.Write(memory, Bytes(values), stream);
  ASSERT_TRUE(OrDie(AppendRow("before", memory, 100, stream)));
  cuda_.Capture(stream, true);
  EXPECT_FALSE(OrDie(AppendRow("within", memory, 100, stream)));
  // The legacy stream would wait for the one that is captured.
  EXPECT_FALSE(OrDie(AppendRow("within", memory, 100, 0)));
  // Larger than half of the ring, for which the caller would wait.
  EXPECT_FALSE(OrDie(AppendRow("within", memory, kRing, stream)));
  cuda_.Capture(stream, false);
  ASSERT_TRUE(OrDie(AppendRow("after", memory, 100, stream)));
  OrDie(sink_->Close(true, ""));
  const auto recorded = Recorded();
  EXPECT_EQ(recorded.size(), 2u);
  EXPECT_EQ(recorded.at("before"), values);
  EXPECT_EQ(recorded.at("after"), values);
}

// Its graph is not spoilt by what this thread and the writer's do meanwhile.
TEST_F(CudaCopierTest, AnotherStreamMayBeCaptured) {
  const uintptr_t captured = cuda_.NewStream();
  const uintptr_t stream = cuda_.NewStream();
  std::byte* const memory = cuda_.Allocate(400);
  cuda_.Capture(captured, true);
  OpenSink();
  ASSERT_TRUE(OrDie(AppendRow("x", memory, 100, stream)));
  OrDie(sink_->Flush());
  OrDie(sink_->Close(true, ""));
  sink_.reset();
  EXPECT_EQ(cuda_.Count("violations"), violations_);
  cuda_.Capture(captured, false);
  EXPECT_EQ(Recorded().size(), 1u);
}

TEST_F(CudaCopierTest, AnErrorOfTheDeviceIsSaidAndNothingIsSealed) {
  // The second: larger than half of the ring, and on another way to the host.
  for (const size_t count : {size_t{100}, kRing / sizeof(float)}) {
    for (const std::string function :
         {"cuMemcpyDtoDAsync", "cuEventRecord", "cuStreamWaitEvent",
          "cuMemcpyDtoHAsync", "cuStreamIsCapturing"}) {
      if (count > 100 && function == "cuMemcpyDtoDAsync") continue;
      OpenSink();
      const uintptr_t stream = cuda_.NewStream();
      std::byte* const memory = cuda_.Allocate(kRing);
      ASSERT_TRUE(OrDie(AppendRow("good", memory, count, stream)));
      cuda_.Fail(function.c_str(), kIllegalAddress);
      const auto failed = AppendRow("bad", memory, count, stream);
      cuda_.Fail(function.c_str(), 0);
      ASSERT_FALSE(failed.ok());
      EXPECT_EQ(failed.error().code(), ErrorCode::kIo);
      EXPECT_THAT(
          failed.error().message(),
          AllOf(HasSubstr(function), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
      // What it was to have of the ring is there again.
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(OrDie(AppendRow("more", memory, kRing / 8, stream)));
      }
      OrDie(sink_->Seal(0, "real"));
      OrDie(sink_->Close(false, "failed"));
      EXPECT_TRUE(
          OrDie(Trace::Open(folder_.path()))->ranks()[0].sealed.empty());
      sink_.reset();
    }
  }
}

TEST_F(CudaCopierTest, AnErrorOnTheWayIsTheAnswerOfALaterCall) {
  OpenSink();
  const uintptr_t stream = cuda_.NewStream();
  std::byte* const memory = cuda_.Allocate(400);
  cuda_.Fail("cuEventQuery", kIllegalAddress);
  // The thread that writes may ask the device before the call returns.
  const auto appended = AppendRow("bad", memory, 100, stream);
  const Status flushed = sink_->Flush();
  cuda_.Fail("cuEventQuery", 0);
  ASSERT_NE(appended.ok(), flushed.ok());
  EXPECT_THAT((appended.ok() ? flushed.error() : appended.error()).message(),
              HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  OrDie(sink_->Seal(0, "real"));
  OrDie(sink_->Flush());
  EXPECT_TRUE(OrDie(Trace::Open(folder_.path()))->ranks()[0].sealed.empty());
}

TEST_F(CudaCopierTest, WhatCannotBeOpenedIsSaidAndTheHostIsRecorded) {
  sink_ = WriteOnThread(OpenRank(folder_.path(), 0, 1), kRing);
  const auto no_driver = sink_->OpenDevice(kFirst, "libno-such-driver.so.1");
  ASSERT_FALSE(no_driver.ok());
  EXPECT_EQ(no_driver.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(sink_->OpenDevice(kFirst, "libm.so.6").error().code(),
            ErrorCode::kUnsupported);
  for (const char* function :
       {"cuMemAlloc", "cuMemHostRegister", "cuStreamCreate"}) {
    cuda_.Fail(function, kOutOfMemory);
    const auto full = sink_->OpenDevice(kFirst, StandInCuda::path());
    cuda_.Fail(function, 0);
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.error().code(), ErrorCode::kIo);
  }
  EXPECT_EQ(cuda_.Count("retained"), retained_);
  const Device none = {DeviceKind::kCuda, 7};
  EXPECT_FALSE(sink_->OpenDevice(none, StandInCuda::path()).ok());
  EXPECT_FALSE(AppendRow("x", cuda_.Allocate(4), 1, 0).ok()) << "not opened";
  OrDie(AppendFloats(*sink_, "host", {1, 2}));
  OrDie(sink_->Close(true, ""));
  EXPECT_EQ(Recorded().size(), 1u);
}

TEST_F(CudaCopierTest, TwoDevicesShareTheRing) {
  OpenSink();
  const Device second = {DeviceKind::kCuda, 1};
  OrDie(sink_->OpenDevice(second, StandInCuda::path()));
  OrDie(sink_->OpenDevice(second, StandInCuda::path()));
  EXPECT_EQ(cuda_.Count("retained"), retained_ + 2);
  const uintptr_t stream = cuda_.NewStream();
  std::byte* const memory = cuda_.Allocate(400);
  std::mt19937 rng(1);
  const std::vector<float> values = Random(rng, 100);
  cuda_.Write(memory, Bytes(values), stream);
  const std::vector<int64_t> strides = {1};
  for (const Device& device : {kFirst, second}) {
    ASSERT_TRUE(OrDie(sink_->AppendFrom(
        {device, stream},
        PlainSpec(Name(static_cast<size_t>(device.index)), DType::kF32, {100}),
        RealOccurrence(), {memory, strides})));
  }
  OrDie(sink_->Close(true, ""));
  EXPECT_EQ(Recorded().at("x0"), values);
  EXPECT_EQ(Recorded().at("x1"), values);
}

// Where a collective waits for a rank that is gone, say.
TEST_F(CudaCopierTest, ADeviceThatHangsDoesNotHoldUpTheEnd) {
  hangs_ = true;
  OpenSink(std::chrono::milliseconds(20));
  const uintptr_t stream = cuda_.NewStream();
  std::byte* const memory = cuda_.Allocate(400);
  ASSERT_TRUE(OrDie(AppendRow("arrives", memory, 100, stream)));
  OrDie(sink_->Flush());
  cuda_.Hold(stream);
  ASSERT_TRUE(OrDie(AppendRow("does not", memory, 100, stream)));
  EXPECT_FALSE(sink_->Close(false, "the process ended").ok());
  sink_.reset();
  EXPECT_EQ(Recorded().size(), 1u);
  // What the device wrote to is still there when it goes on.
  cuda_.LetGo(stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST_F(CudaCopierTest, AForkedChildIsRefusedAndHasNoneOfTheMemory) {
  OpenSink();
  const uintptr_t stream = cuda_.NewStream();
  std::byte* const memory = cuda_.Allocate(400);
  ASSERT_TRUE(OrDie(AppendRow("parent", memory, 100, stream)));
  const void* const pinned = cuda_.Pinned();
  ASSERT_NE(pinned, nullptr);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    // The system reads it for us: an address that the child has not is an
    // error.
    const bool has_memory = ::write(ends[1], pinned, 1) == 1;
    const bool refused = !AppendRow("child", memory, 100, stream).ok() &&
                         !sink_->OpenDevice(kFirst, StandInCuda::path()).ok();
    sink_.reset();
    ::_exit(refused && !has_memory ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  ASSERT_TRUE(OrDie(AppendRow("later", memory, 100, stream)));
  OrDie(sink_->Close(true, ""));
  EXPECT_EQ(Recorded().size(), 2u);
}

}  // namespace
}  // namespace ttrace::cuda_copier_test
