#include "src/cli/live_line.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string_view>

#include "src/base/format.h"
#include "src/cli/interrupt.h"
#include "src/cli/terminal.h"

namespace ttrace {
namespace {

constexpr std::string_view kEraseLine = "\r\033[K";

std::atomic<Audience> g_audience{Audience::kPerson};

// A signal handler can reach nothing but globals. `g_shown` is also what
// ClearLiveLine goes by.
std::atomic<bool> g_shown{false};
std::mutex g_mutex;
int g_columns = 0;  // of the line that is shown

constexpr std::array<int, 3> kEnding = {SIGINT, SIGTERM, SIGHUP};
std::array<struct sigaction, kEnding.size()> g_old{};
std::array<bool, kEnding.size()> g_taken{};

void OnEnding(int number) {
  if (g_shown.load()) {
    (void)!write(STDERR_FILENO, kEraseLine.data(), kEraseLine.size());
  }
  signal(number, SIG_DFL);
  raise(number);
}

// A command that runs is ended before we end. Python, whose console script we
// may be, takes note of SIGINT and does nothing before we return to it.
void TakeEndings() {
  if (InterruptGuard::exists()) return;
  for (size_t i = 0; i < kEnding.size(); ++i) {
    sigaction(kEnding[i], nullptr, &g_old[i]);
    g_taken[i] = g_old[i].sa_handler != SIG_IGN;
    if (!g_taken[i]) continue;
    struct sigaction action {};
    action.sa_handler = OnEnding;
    sigemptyset(&action.sa_mask);
    sigaction(kEnding[i], &action, nullptr);
  }
}

void GiveEndingsBack() {
  for (size_t i = 0; i < kEnding.size(); ++i) {
    if (g_taken[i]) sigaction(kEnding[i], &g_old[i], nullptr);
    g_taken[i] = false;
  }
}

void ClearLocked() {
  if (!g_shown.exchange(false)) return;
  std::fputs(kEraseLine.data(), stderr);
  std::fflush(stderr);
}

}  // namespace

void SetAudience(Audience audience) { g_audience = audience; }
Audience CurrentAudience() { return g_audience; }

void Say(const std::string& line) {
  if (CurrentAudience() != Audience::kPerson) return;
  ClearLiveLine();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void SayAside(const std::string& line) {
  if (CurrentAudience() != Audience::kPerson) return;
  ClearLiveLine();
  std::fprintf(stderr, "ttrace: %s\n", line.c_str());
  std::fflush(stderr);
}

void ClearLiveLine() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  ClearLocked();
}

std::string FittedLine(const std::vector<std::string>& parts, size_t columns) {
  std::string line;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    const std::string longer = line.empty() ? part : line + ", " + part;
    if (!line.empty() && Columns(longer) > columns) break;
    line = longer;
  }
  return ShortenMiddle(line, columns);
}

LiveLine::LiveLine() : active_(isatty(STDERR_FILENO) != 0) { TakeEndings(); }

LiveLine::~LiveLine() {
  ClearLiveLine();
  GiveEndingsBack();
}

void LiveLine::Show(const std::vector<std::string>& parts) {
  if (!active_) return;
  // The last column is left free: a terminal may go to the next line there.
  const int width = WidthOfStandardError() - 1;
  const std::string line =
      FittedLine(parts, static_cast<size_t>(std::max(width, 1)));
  const std::lock_guard<std::mutex> lock(g_mutex);
  // In a terminal that became narrower the line may have come to lie on
  // several; what is below the cursor goes too.
  const bool narrower = g_shown && g_columns > width;
  g_shown = true;
  g_columns = static_cast<int>(Columns(line));
  std::fprintf(stderr, "\r\033[%s%s", narrower ? "J" : "K", line.c_str());
  std::fflush(stderr);
}

}  // namespace ttrace
