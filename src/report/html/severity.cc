#include "src/report/html/severity.h"

#include <cmath>
#include <string_view>

namespace ttrace {
namespace {

Severity SeverityOfVerdict(std::string_view verdict, double headroom,
                           bool explained, bool nonfinite) {
  if (verdict == "unmatched") {
    return explained ? Severity::kUnobserved : Severity::kOneSide;
  }
  if (verdict == "bitwise_equal") return Severity::kEqual;
  if (verdict == "diverged") {
    // Within its bound: something else decides, copies that differ or a value
    // that must be another.
    if (nonfinite || !std::isfinite(headroom) || headroom <= 1) {
      return Severity::kNoBound;
    }
    if (headroom >= 1e3) return Severity::kVeryFarOut;
    return headroom >= 10 ? Severity::kFarOut : Severity::kOut;
  }
  if (verdict == "suspect") return Severity::kClose;
  if (verdict == "within") {
    if (headroom >= 0.5) return Severity::kClose;
    return headroom >= 0.1 ? Severity::kNearer : Severity::kClean;
  }
  // "not_checkable", or a word of a later version: nothing is known of it.
  return explained ? Severity::kExcused : Severity::kNotCheckable;
}

}  // namespace

const std::array<const char*, kSeverities> kSeverityWords = {
    "nothing recorded",
    "excused: left out for a known reason",
    "not observed, for a known reason",
    "equal bit for bit",
    "clean, headroom below 0.1",
    "clean, headroom 0.1 to 0.5",
    "close to its bound, headroom 0.5 to 1",
    "not checkable",
    "on one side only",
    "out of bounds, up to 10 x the bound",
    "out of bounds, up to 1,000 x the bound",
    "out of bounds, above 1,000 x the bound",
    "out: must be equal and is not, or not finite"};

const std::array<const char*, kSeverities> kSeverityShort = {
    "",
    "excused",
    "not observed",
    "equal",
    "&lt; 0.1",
    "0.1&ndash;0.5",
    "0.5&ndash;1",
    "not checkable",
    "one side only",
    "1&ndash;10",
    "10&ndash;10&sup3;",
    "&gt; 10&sup3;",
    "&ne;, &infin;"};

Severity SeverityOf(const ResultFile::Tensor& tensor) {
  return SeverityOfVerdict(tensor.verdict, tensor.headroom, tensor.explained,
                           tensor.nonfinite);
}

Severity IsolatedSeverityOf(const ResultFile::Tensor& tensor) {
  if (!tensor.isolated) return Severity::kNone;
  // What it worked on was not all replaced: it flags nothing by itself.
  if (!tensor.isolated->replaced) return Severity::kExcused;
  return SeverityOfVerdict(tensor.isolated->verdict, tensor.isolated->headroom,
                           false, false);
}

}  // namespace ttrace
