#include "src/cli/interrupt.h"

namespace ttrace {
namespace {

// A signal handler can reach nothing but globals.
InterruptFlag g_flag;
bool g_guarded = false;

static_assert(std::atomic<int>::is_always_lock_free,
              "the handler may not take a lock");

void OnSignal(int signal) {
  int none = 0;
  g_flag.signal.compare_exchange_strong(none, signal);
  g_flag.count.fetch_add(1);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  g_flag.signal = 0;
  g_flag.count = 0;
  g_guarded = true;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
  sigaction(SIGHUP, &action, &old_hup_);
  // nohup asks for SIGHUP to be ignored, and it stays ignored.
  if (old_hup_.sa_handler == SIG_IGN) sigaction(SIGHUP, &old_hup_, nullptr);
}

InterruptGuard::~InterruptGuard() {
  g_guarded = false;
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGHUP, &old_hup_, nullptr);
}

bool InterruptGuard::exists() { return g_guarded; }

const InterruptFlag* InterruptGuard::flag() const { return &g_flag; }

}  // namespace ttrace
