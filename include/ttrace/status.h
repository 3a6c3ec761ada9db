// Error and Result<T>: how a function says that its *input* was unusable.
//
// A Result holds a value or an Error, never both and never neither. Errors are
// for inputs that cannot be worked with: a file that is cut short, a rank that
// never wrote its trace, shards that leave a hole in their tensor. A numerical
// difference is not an error. It is what the tool is for, and it travels in
// the report.
//
// Thread safety: as for std::string. Many readers, or one writer.

#ifndef TTRACE_STATUS_H_
#define TTRACE_STATUS_H_

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace ttrace {

enum class ErrorCode : uint8_t {
  kInvalidArgument,  // the caller asked for something meaningless
  kNotFound,         // a file, rank or tensor that should exist does not
  kCorrupt,          // the bytes contradict the trace format
  kIncomparable,     // both traces are fine, but not of the same computation
  kUnsupported,      // valid, and we do not do it (yet)
  kIo,               // the operating system said no
};

std::string_view ToString(ErrorCode code);

class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message)
      : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // Returns a copy that reads "<context>: <message>". Each layer adds what it
  // alone knows, so the user sees "rank 3: step_12.trace: header: ...".
  Error WithContext(std::string_view context) const;

 private:
  ErrorCode code_;
  std::string message_;
};

inline Error Invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}
inline Error Corrupt(std::string message) {
  return {ErrorCode::kCorrupt, std::move(message)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  // Both implicit, so that `return tensor;` and `return Error(...)` read well.
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  bool ok() const { return std::holds_alternative<T>(state_); }

  // REQUIRES: !ok()
  const Error& error() const { return std::get<Error>(state_); }

  // REQUIRES: ok()
  T& operator*() & { return std::get<T>(state_); }
  const T& operator*() const& { return std::get<T>(state_); }
  T&& operator*() && { return std::get<T>(std::move(state_)); }
  const T* operator->() const { return &std::get<T>(state_); }

 private:
  std::variant<T, Error> state_;
};

// What a function returns that has nothing to say but "done" or an Error.
struct Done {};
using Status = Result<Done>;

}  // namespace ttrace

#define TTRACE_CONCAT_(a, b) a##b
#define TTRACE_CONCAT(a, b) TTRACE_CONCAT_(a, b)

// Declares or assigns `lhs` from a Result, or returns its Error to the caller.
// Expands to two statements: not for use as an unbraced if-body.
#define TTRACE_ASSIGN_OR_RETURN(lhs, expr) \
  TTRACE_ASSIGN_OR_RETURN_(TTRACE_CONCAT(result_, __LINE__), lhs, expr)
#define TTRACE_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                             \
  if (!result.ok()) return result.error();          \
  lhs = *std::move(result)

// Returns the Error of a Result whose value is of no interest, if it has one.
#define TTRACE_RETURN_IF_ERROR(expr)                                  \
  do {                                                                \
    auto ttrace_status = (expr);                                      \
    if (!ttrace_status.ok()) return std::move(ttrace_status).error(); \
  } while (false)

#endif  // TTRACE_STATUS_H_
