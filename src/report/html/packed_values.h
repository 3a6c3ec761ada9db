// Numbers and texts of a leg in few bytes.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_HTML_PACKED_VALUES_H_
#define TTRACE_SRC_REPORT_HTML_PACKED_VALUES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace ttrace {

// 0: not measured, 1: zero, 65534: NaN, 65535: infinity; else the logarithm
// from 1e-20 to 1e20 in steps of 0.14 %, of which two digits are shown.
// REQUIRES: value is not negative; such are taken as zero.
uint16_t PackNumber(double value);

// Where a bound comes from without the number that is its own:
// "noise 1.3e-02 x 2 (3 noise legs)" -> "noise {} x 2 (3 noise legs)". The
// script divides the bound by the factor to put it back.
std::string ProvenanceTemplate(std::string_view provenance);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_PACKED_VALUES_H_
