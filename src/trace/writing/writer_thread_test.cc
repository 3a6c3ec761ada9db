#include "src/trace/writing/writer_thread.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::writer_thread_test {
namespace {

constexpr size_t kRing = 16 * 1024;

std::string Name(int i) { return std::string("x").append(std::to_string(i)); }

std::unique_ptr<TraceWriter> OpenOnThread(const std::string& folder) {
  return WriteOnThread(OpenRank(folder, 0, 1), kRing);
}

// Tensors of 0 to 40 KiB, some larger than the ring, some of them transposed,
// each in memory that is overwritten as soon as Append has returned.
void WriteManyTensors(TraceWriter& writer) {
  std::mt19937 rng(3);
  std::vector<float> memory;
  for (int i = 0; i < 500; ++i) {
    const auto rows = static_cast<int64_t>(rng() % 101);
    const auto columns = static_cast<int64_t>(rng() % 101);
    memory.resize(static_cast<size_t>(rows * columns));
    for (float& value : memory) value = static_cast<float>(rng());
    const std::vector<int64_t> strides = i % 3 == 0
                                             ? std::vector<int64_t>{1, rows}
                                             : std::vector<int64_t>{columns, 1};
    OrDie(writer.Append(PlainSpec(Name(i), DType::kF32, {rows, columns}),
                        RealOccurrence(),
                        {std::as_bytes(std::span(memory)).data(), strides}));
    std::fill(memory.begin(), memory.end(), -1.0F);
    if (i == 250) OrDie(writer.Note("notice", R"({"what": "half"})"));
  }
  OrDie(writer.Seal(0, "real"));
  OrDie(writer.Close(true, ""));
}

TEST(WriterThread, WritesWhatAWriterWithoutAThreadDoes) {
  const ScratchFolder folder;
  WriteManyTensors(*OpenRank(folder / "plain", 0, 1));
  WriteManyTensors(*OpenOnThread(folder / "thread"));
  for (const char* file : {"index.jsonl", "segment-00000.safetensors"}) {
    const std::string name = std::string("/rank-00000.r0/") + file;
    const std::string plain = FileText(folder / ("plain" + name));
    EXPECT_GT(plain.size(), 10'000u);
    EXPECT_TRUE(plain == FileText(folder / ("thread" + name))) << file;
  }
}

TEST(WriterThread, WhatWasAppendedIsWrittenWithoutAClose) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  {
    const auto writer = OpenOnThread(folder.path());
    for (int i = 0; i < 100; ++i) {
      OrDie(AppendFloats(*writer, Name(i), std::vector<float>(500, 1.0F)));
    }
  }
  EXPECT_EQ(OrDie(Trace::Open(folder.path()))->records().size(), 100u);
}

// Where the caller comes no further, as in a collective that hangs.
TEST(WriterThread, WhatWasAppendedIsInTheIndexThoughNoFurtherCallComes) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  const auto writer = OpenOnThread(folder.path());
  for (int i = 0; i < 100; ++i) {
    OrDie(AppendFloats(*writer, Name(i), {1.0F}));
  }
  const auto written = [&] {
    return OrDie(Trace::Open(folder.path()))->records().size();
  };
  for (int tries = 0; written() < 100 && tries < 3000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(written(), 100u);
}

// What a writer of a test does not look at.
class WritesNothing : public TraceWriter {
 public:
  Status Append(const RecordSpec&, const Occurrence&,
                const StridedView&) override {
    return Done{};
  }
  Status AppendSummary(const RecordSpec&, const Occurrence&, Summary,
                       std::span<const std::byte>) override {
    return Done{};
  }
  Status Restate(RecordFields*, std::span<const std::byte>) override {
    return Done{};
  }
  Status Note(const std::string&, const std::string&) override {
    return Done{};
  }
  Status Flush() override { return Done{}; }
  Status Seal(int, const Leg&) override { return Done{}; }
  Status Close(bool, const std::string&) override { return Done{}; }
};

// A writer that tells who flushes it.
class Flushed final : public WritesNothing {
 public:
  explicit Flushed(std::atomic<int>& by_others) : by_others_(by_others) {}
  Status Flush() override {
    by_others_ += std::this_thread::get_id() != caller_;
    return Done{};
  }

 private:
  std::atomic<int>& by_others_;
  const std::thread::id caller_ = std::this_thread::get_id();
};

// Whoever took the writer writes lines while the thread would flush them.
TEST(WriterThread, AWriterThatWasTakenIsTheTakersAlone) {
  std::atomic<int> by_others = 0;
  const auto writer =
      WriteOnThread(std::make_unique<Flushed>(by_others), kRing);
  for (int i = 0; i < 20; ++i) {
    OrDie(AppendFloats(*writer, Name(i), {1.0F}));
    // It naps, and then waits for what may come.
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    OrDie(writer->Flush());
    const int before = by_others;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ASSERT_EQ(by_others, before);
  }
}

// A writer that waits to be let on, and counts.
class Held final : public WritesNothing {
 public:
  explicit Held(std::atomic<bool>& open) : open_(open) {}
  Status Append(const RecordSpec& spec, const Occurrence&,
                const StridedView&) override {
    while (!open_) std::this_thread::yield();
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGTERM), 1) << "signals are not for it";
    if (spec.fqn == "bad") {
      return Error(ErrorCode::kInvalidArgument, "cannot be placed");
    }
    ++appended;
    return Done{};
  }
  Status Note(const std::string&, const std::string&) override {
    appended_at_note = appended.load();
    return Done{};
  }
  Status Flush() override {
    appended_at_flush = appended.load();
    return Done{};
  }
  Status Seal(int, const Leg&) override {
    appended_at_seal = appended.load();
    ++seals;
    return Done{};
  }
  Status Close(bool complete, const std::string&) override {
    closed_complete = complete;
    return Done{};
  }
  std::atomic<int> appended = 0;
  int appended_at_note = -1;
  int appended_at_flush = -1;
  int appended_at_seal = -1;
  int seals = 0;
  bool closed_complete = false;

 private:
  std::atomic<bool>& open_;
};

// A writer that keeps a summary of two bytes of what is large, and no values.
class Summing final : public TraceWriter {
 public:
  Status Append(const RecordSpec& spec, const Occurrence&,
                const StridedView&) override {
    copied.push_back(spec.fqn);
    return Done{};
  }
  std::optional<Reducer::Summarized> SummaryOf(
      const RecordSpec& spec, const Occurrence&, const StridedView& view,
      const DoParts& parts) const override {
    if (spec.fqn == "values") return std::nullopt;
    EXPECT_EQ(view.data, memory) << "it is summarised where it lies";
    EXPECT_EQ(std::this_thread::get_id(), caller);
    std::atomic<int> sum = 0;
    parts(3, [&](size_t i) { sum += static_cast<int>(i); });
    return Reducer::Summarized{
        Summary::kDigest, {std::byte{7}, static_cast<std::byte>(sum.load())}};
  }
  Status AppendSummary(const RecordSpec& spec, const Occurrence&, Summary,
                       std::span<const std::byte> bytes) override {
    EXPECT_EQ(std::vector<std::byte>(bytes.begin(), bytes.end()),
              (std::vector<std::byte>{std::byte{7}, std::byte{3}}));
    summarised.push_back(spec.fqn);
    return Done{};
  }
  Status Restate(RecordFields*, std::span<const std::byte>) override {
    return Done{};
  }
  Status Note(const std::string&, const std::string&) override {
    return Done{};
  }
  Status Flush() override { return Done{}; }
  Status Seal(int, const Leg&) override { return Done{}; }
  Status Close(bool, const std::string&) override { return Done{}; }

  const std::thread::id caller = std::this_thread::get_id();
  const std::byte* memory = nullptr;
  std::vector<std::string> copied;
  std::vector<std::string> summarised;
};

TEST(WriterThread, OfALargeTensorASummaryIsMadeWithoutACopy) {
  auto summing = std::make_unique<Summing>();
  Summing& saw = *summing;
  const auto writer = WriteOnThread(std::move(summing), kRing);
  // 300 times the ring: it could not be staged.
  const std::vector<float> large(300 * kRing / sizeof(float));
  saw.memory = std::as_bytes(std::span(large)).data();
  OrDie(AppendFloats(*writer, "large", large));
  OrDie(AppendFloats(*writer, "values", large));
  OrDie(AppendFloats(*writer, "small", {1, 2, 3}));
  OrDie(AppendFloats(*writer, "large again", large));
  OrDie(writer->Flush());
  EXPECT_EQ(saw.summarised, (std::vector<std::string>{"large", "large again"}));
  EXPECT_EQ(saw.copied, (std::vector<std::string>{"values", "small"}));
}

TEST(WriterThread, HelpsWithTheCallersWork) {
  const ScratchFolder folder;
  const auto writer = WriteOnThread(OpenRank(folder.path(), 0, 1), kRing);
  // Neither part ends before the other has begun: one thread would wait for
  // ever.
  std::atomic<int> begun = 0;
  writer->Do(2, [&](size_t) {
    ++begun;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (begun < 2 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(begun, 2);
  std::vector<std::atomic<int>> done(1000);
  for (int round = 0; round < 20; ++round) {
    writer->Do(done.size(), [&](size_t i) { ++done[i]; });
  }
  for (const std::atomic<int>& times : done) EXPECT_EQ(times, 20);
  EXPECT_THROW(writer->Do(50, [](size_t) { throw std::bad_alloc(); }),
               std::bad_alloc);
  OrDie(AppendFloats(*writer, "x", {1}));
  OrDie(writer->Close(true, ""));
}

TEST(WriterThread, AppendReturnsBeforeTheWriteAndWaitsWhereTheRingIsFull) {
  std::atomic<bool> open = false;
  auto held = std::make_unique<Held>(open);
  const Held& counts = *held;
  const auto writer = WriteOnThread(std::move(held), kRing);
  // Half of the ring at a time: two fit.
  const std::vector<float> half(kRing / 2 / sizeof(float) - 16);
  OrDie(AppendFloats(*writer, "a", half));
  OrDie(AppendFloats(*writer, "b", half));
  EXPECT_EQ(counts.appended, 0);
  std::atomic<bool> third = false;
  std::thread caller([&] {
    OrDie(AppendFloats(*writer, "c", half));
    third = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(third) << "the ring is full";
  open = true;
  caller.join();
  OrDie(writer->Note("notice", "{}"));
  OrDie(AppendFloats(*writer, "d", {1}));
  OrDie(writer->Flush());
  EXPECT_EQ(counts.appended_at_note, 3) << "a note comes in its turn";
  EXPECT_EQ(counts.appended_at_flush, 4);
  OrDie(AppendFloats(*writer, "e", {1}));
  OrDie(writer->Close(true, ""));
  EXPECT_EQ(counts.appended, 5) << "close comes last";
}

TEST(WriterThread, ASealComesInItsTurnAndNobodyWaitsForIt) {
  std::atomic<bool> open = false;
  auto held = std::make_unique<Held>(open);
  const Held& counts = *held;
  const auto writer = WriteOnThread(std::move(held), kRing);
  OrDie(AppendFloats(*writer, "a", {1}));
  OrDie(writer->Seal(0, "real"));
  EXPECT_EQ(counts.seals, 0);
  open = true;
  OrDie(writer->Flush());
  EXPECT_EQ(counts.appended_at_seal, 1);
}

TEST(WriterThread, ALegIsNotSealedWithoutWhatFailedAlsoIfThatWasSaid) {
  std::atomic<bool> open = true;
  auto held = std::make_unique<Held>(open);
  const Held& counts = *held;
  const auto writer = WriteOnThread(std::move(held), kRing);
  OrDie(AppendFloats(*writer, "bad", {1}));
  EXPECT_FALSE(writer->Flush().ok());
  OrDie(writer->Seal(0, "real"));
  OrDie(writer->Seal(1, "real"));
  OrDie(writer->Flush());
  EXPECT_EQ(counts.seals, 1);
}

TEST(WriterThread, AnErrorIsSaidOnceAndTheTraceIsNotComplete) {
  std::atomic<bool> open = false;
  const Held* counts = nullptr;
  const auto append_bad = [&] {
    open = false;
    auto held = std::make_unique<Held>(open);
    counts = held.get();
    auto writer = WriteOnThread(std::move(held), kRing);
    OrDie(AppendFloats(*writer, "bad", {1}));  // Nobody knows yet.
    open = true;
    return writer;
  };
  const auto sealed = append_bad();
  Status status = sealed->Seal(0, "real");
  if (status.ok()) status = sealed->Flush();  // Known by now.
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(counts->seals, 0);
  OrDie(AppendFloats(*sealed, "good", {1}));
  OrDie(sealed->Seal(0, "real"));
  OrDie(sealed->Flush());
  EXPECT_EQ(counts->seals, 1);
  OrDie(sealed->Close(true, ""));
  EXPECT_EQ(counts->appended, 1);
  EXPECT_TRUE(counts->closed_complete) << "it was said before";

  const auto closed = append_bad();
  EXPECT_FALSE(closed->Close(true, "").ok());
  EXPECT_FALSE(counts->closed_complete);
}

// Larger than half of the ring: what is read is the caller's memory, so that
// the call returns after it.
TEST(WriterThread, ATensorLargerThanTheRingIsWrittenBeforeAppendReturns) {
  std::atomic<bool> open = true;
  auto held = std::make_unique<Held>(open);
  const Held& counts = *held;
  const auto writer = WriteOnThread(std::move(held), kRing);
  OrDie(AppendFloats(*writer, "large", std::vector<float>(kRing)));
  EXPECT_EQ(counts.appended, 1);
  // An error of it is its own.
  EXPECT_FALSE(AppendFloats(*writer, "bad", std::vector<float>(kRing)).ok());
}

TEST(WriterThread, AForkedChildIsRefusedAndEnds) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  auto writer = OpenOnThread(folder.path());
  for (int i = 0; i < 50; ++i) {
    OrDie(AppendFloats(*writer, Name(i), {1, 2, 3}));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const bool refused = !AppendFloats(*writer, "child", {2}).ok() &&
                         !writer->Seal(0, "real").ok() &&
                         !writer->Note("notice", "{}").ok() &&
                         !writer->Flush().ok() && !writer->Close(true, "").ok();
    writer.reset();  // As a destructor at exit would.
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  OrDie(AppendFloats(*writer, "y", {3}));
  OrDie(writer->Close(true, ""));
  EXPECT_EQ(OrDie(Trace::Open(folder.path()))->records().size(), 51u);
}

TEST(WriterThread, AFullDiskIsSaidAndTheTraceIsNotComplete) {
  const ScratchFolder folder;
  OrDie(CreateTraceFolder(folder.path(), "{}", false));
  const pid_t child = ::fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_DFL);
    auto writer = OpenOnThread(folder.path());
    const rlimit limit = {400'000, 400'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    bool failed = false;
    for (int i = 0; i < 100 && !failed; ++i) {
      failed =
          !AppendFloats(*writer, Name(i), std::vector<float>(3000, 1.0F)).ok();
    }
    const bool close_failed = !writer->Close(true, "").ok();
    ::_exit(failed && close_failed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const auto trace = OrDie(Trace::Open(folder.path()));
  EXPECT_FALSE(trace->ranks()[0].complete);
  EXPECT_FALSE(trace->records().empty());
}

}  // namespace
}  // namespace ttrace::writer_thread_test
