// What a failed TTRACE_CHECK does. A program of ours aborts. Inside somebody
// else's program, a training process that is being captured, it must not: there
// a failed check ends the call that met it, and capture turns itself off.

#ifndef TTRACE_SRC_BASE_CHECK_HANDLER_H_
#define TTRACE_SRC_BASE_CHECK_HANDLER_H_

#include <stdexcept>

namespace ttrace {

// A bug of our own, with the place and the sentence of the failed check.
class Bug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// From now on, in this process, a failed check throws a Bug. Objects that it
// left in the middle of something are not to be used again.
void ThrowOnFailedChecks();

}  // namespace ttrace

#endif  // TTRACE_SRC_BASE_CHECK_HANDLER_H_
