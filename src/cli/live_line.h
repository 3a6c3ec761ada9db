// A line at the foot of the terminal that is rewritten in place, and what else
// the program says, which may not tear it.
//
// Thread safety: all functions and methods, from many threads.

#ifndef TTRACE_SRC_CLI_LIVE_LINE_H_
#define TTRACE_SRC_CLI_LIVE_LINE_H_

#include <string>
#include <vector>

namespace ttrace {

// What is shown to whom. Errors and the report are shown in any case.
enum class Audience {
  kPerson,   // lines of what is done, and how far it is
  kNobody,   // --quiet
  kProgram,  // --json-progress
};

// Of this process, from here on; kPerson at first.
void SetAudience(Audience audience);
Audience CurrentAudience();

// A line of what is done, for a person: on standard output, or on standard
// error as "ttrace: ...".
void Say(const std::string& line);
void SayAside(const std::string& line);

// Takes the live line away, if one is shown. Before anything else is written to
// the terminal.
void ClearLiveLine();

// At most one at a time. It is gone when this is, and when SIGINT, SIGTERM or
// SIGHUP end the program, which they do at once for as long as this lives and
// there is no InterruptGuard.
class LiveLine {
 public:
  LiveLine();
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  // Whether standard error is a terminal; else Show does nothing.
  bool active() const { return active_; }
  // The parts, joined by ", ": as many of them as the terminal is wide, those
  // at the end left out first.
  void Show(const std::vector<std::string>& parts);

 private:
  const bool active_;
};

// What Show shows in `columns`.
std::string FittedLine(const std::vector<std::string>& parts, size_t columns);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_LIVE_LINE_H_
