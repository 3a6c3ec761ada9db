// How bad a tensor is, as a colour of the page: one scale for the maps, the
// overview, the table and the comparison of results.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_HTML_SEVERITY_H_
#define TTRACE_SRC_REPORT_HTML_SEVERITY_H_

#include <array>
#include <cstdint>

#include "src/report/result_file.h"

namespace ttrace {

// Mildest first, so that a cell that stands for several shows the worst of
// them. The numbers are names of classes in style.css (s1 to s12) and of the
// script.
enum class Severity : uint8_t {
  kNone,          // nothing recorded
  kExcused,       // left out for a known reason
  kUnobserved,    // on one side only, for a known reason
  kEqual,         // bit for bit
  kClean,         // headroom below 0.1
  kNearer,        // 0.1 to 0.5
  kClose,         // 0.5 to 1
  kNotCheckable,  // no bound that means something
  kOneSide,       // on one side only, and nothing explains it
  kOut,           // up to 10 x the bound
  kFarOut,        // up to 1,000 x
  kVeryFarOut,    // above
  // Must be equal and is not, or is not finite; also what is within its bound
  // and diverged all the same, as copies of it that differ.
  kNoBound,
};
inline constexpr size_t kSeverities = 13;

inline bool IsOut(Severity severity) { return severity >= Severity::kOut; }

// Whether the headroom is not what decides: it is out, and within its bound.
inline bool IsOutWithinBound(Severity severity, double headroom) {
  return severity == Severity::kNoBound && headroom <= 1;
}

Severity SeverityOf(const ResultFile::Tensor& tensor);
// Of the isolated legs; kNone if it was not isolated.
Severity IsolatedSeverityOf(const ResultFile::Tensor& tensor);

// Whole words, and what fits a legend.
extern const std::array<const char*, kSeverities> kSeverityWords;
extern const std::array<const char*, kSeverities> kSeverityShort;

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_SEVERITY_H_
