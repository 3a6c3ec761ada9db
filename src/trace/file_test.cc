#include "src/trace/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <string>
#include <thread>

#include "src/trace/testing/scratch_trace.h"

namespace ttrace::file_test {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// RLIMIT_FSIZE for the lifetime of this object.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

TEST(File, WritesAndReadsAtOffsets) {
  const ScratchFolder folder;
  File out = OrDie(File::Create(folder / "a"));
  OrDie(out.WriteAt(Bytes("world"), 6));
  OrDie(out.WriteAt(Bytes("hello "), 0));
  OrDie(out.Sync());
  EXPECT_EQ(FileText(folder / "a"), "hello world");

  const File in = OrDie(File::Open(folder / "a"));
  EXPECT_EQ(OrDie(in.Size()), 11);
  std::string text(8, '?');
  EXPECT_EQ(OrDie(in.ReadAt(std::as_writable_bytes(std::span(text)), 6)), 5u);
  EXPECT_EQ(text, "world???");
}

TEST(File, NeverOverwritesWhenCreating) {
  const ScratchFolder folder;
  SetFileText(folder / "a", "precious");
  const Result<File> file = File::Create(folder / "a");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::kIo);
  EXPECT_EQ(FileText(folder / "a"), "precious");
}

TEST(File, OpensOnlyRegularFiles) {
  const ScratchFolder folder;
  EXPECT_EQ(File::Open(folder / "none").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(File::Open(folder.path()).error().code(), ErrorCode::kCorrupt);
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(File::Open(folder / "fifo").error().code(), ErrorCode::kCorrupt)
      << "and does not wait for a writer";
}

TEST(File, AFileSizeLimitIsAnErrorAndNoSignal) {
  const ScratchFolder folder;
  File out = OrDie(File::Create(folder / "a"));
  // The default action would end this test's process.
  ASSERT_NE(signal(SIGXFSZ, SIG_DFL), SIG_ERR);
  const FileSizeLimit limit(1000);
  const Status status = out.WriteAt(Bytes(std::string(5000, 'x')), 0);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kIo);
  EXPECT_NE(status.error().message().find(folder / "a"), std::string::npos);

  sigset_t now;
  sigpending(&now);
  EXPECT_EQ(sigismember(&now, SIGXFSZ), 0) << "taken back";
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  EXPECT_EQ(sigismember(&now, SIGXFSZ), 0) << "the mask is as before";
}

TEST(File, LeavesAPendingSignalOfTheProgramAlone) {
  const ScratchFolder folder;
  File out = OrDie(File::Create(folder / "a"));
  std::thread([&] {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    pthread_kill(pthread_self(), SIGXFSZ);
    {
      const FileSizeLimit limit(1000);
      EXPECT_FALSE(out.WriteAt(Bytes(std::string(5000, 'x')), 0).ok());
    }
    sigset_t pending;
    sigpending(&pending);
    EXPECT_EQ(sigismember(&pending, SIGXFSZ), 1);
  }).join();
}

TEST(WholeFile, IsReadUpToALimit) {
  const ScratchFolder folder;
  SetFileText(folder / "a", "12345");
  EXPECT_EQ(OrDie(ReadWholeFile(folder / "a", 5)), "12345");
  EXPECT_EQ(ReadWholeFile(folder / "a", 4).error().code(), ErrorCode::kCorrupt);
}

TEST(WholeFile, IsReplacedAtomicallyAndLeavesNothingBehind) {
  const ScratchFolder folder;
  SetFileText(folder / "a", "old");
  SetFileText(folder / "a.tmp", "of a writer that died");
  OrDie(WriteFileAtomically(folder / "a", "new"));
  EXPECT_EQ(FileText(folder / "a"), "new");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.tmp"));
}

}  // namespace
}  // namespace ttrace::file_test
