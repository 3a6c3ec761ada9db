// The output of a command: into a file, and its end in memory as well.
//
// The file may be on the disk that the command has just filled. What it said
// about that is what one needs to read.

#ifndef TTRACE_SRC_RUN_OUTPUT_LOG_H_
#define TTRACE_SRC_RUN_OUTPUT_LOG_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "ttrace/status.h"

namespace ttrace {

class OutputLog {
 public:
  // Creates or empties the file. Fails with kIo.
  static Result<std::unique_ptr<OutputLog>> Open(const std::string& path);
  ~OutputLog();
  OutputLog(const OutputLog&) = delete;
  OutputLog& operator=(const OutputLog&) = delete;

  // Where the command writes. Closed by Start.
  int write_end() const { return write_end_; }

  // Begins to read, in a thread. After the command is forked.
  void Start();

  // Takes what is there and stops. Later output has no reader.
  void Stop();

  // After Stop. At most the last 64 KiB.
  const std::string& tail() const { return tail_; }
  // After Stop. Why the file lacks output, or "".
  const std::string& problem() const { return problem_; }

 private:
  OutputLog(int file, int read_end, int write_end)
      : file_(file), read_end_(read_end), write_end_(write_end) {}
  void Run();
  // False at the end of the output.
  bool TakeSome();
  void Write(const char* data, size_t size);

  int file_;
  int read_end_;
  int write_end_;
  std::string tail_;
  std::string problem_;
  std::atomic<bool> stop_{false};
  std::thread reader_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_OUTPUT_LOG_H_
