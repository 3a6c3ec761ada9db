// messages.jsonl: what Python processes of a run left behind outside any rank's
// trace, because they had none: that capture was loaded, why it refused, of
// what the process died. Written by python/ttrace/capture/process_messages.py.

#ifndef TTRACE_SRC_RUN_PROCESS_MESSAGES_H_
#define TTRACE_SRC_RUN_PROCESS_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

struct ProcessMessages {
  int loaded = 0;          // Python processes in which capture was loaded
  int ended = 0;           // ... that ended in an orderly way
  int with_torch = 0;      // ... having imported torch
  int with_framework = 0;  // ... having imported a framework with an adapter
  // The most that a loop ran to which capture was attached; -1: to none.
  int64_t iterations = -1;
  std::vector<std::string> refusals;  // "rank 0: ...", first first, once each
  // Uncaught exceptions, those that are no consequence of another first.
  std::vector<std::string> errors;
};

// Reads what is there. What is unreadable is passed over: messages only help to
// explain.
ProcessMessages ReadProcessMessages(const std::string& trace_folder);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_PROCESS_MESSAGES_H_
