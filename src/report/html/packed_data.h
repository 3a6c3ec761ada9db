// All tensors for the page's script: about 60 bytes a tensor instead of the
// 1,500 of result.json.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_HTML_PACKED_DATA_H_
#define TTRACE_SRC_REPORT_HTML_PACKED_DATA_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "src/report/html/report_model.h"

namespace ttrace {

// Where there are more legs, those of clean tensors are left out: a page of
// 10,000 tensors stays below 1 MB.
inline constexpr size_t kMostPackedLegs = 45000;

// JSON that holds no "<", ">" and "&", so that no text can end its element.
//
// Strings stand once in tables, and a tensor is a row of numbers. A column of
// these is "=7" if all are 7, else B, H or I (bytes, 16 or 32 bits, little
// endian) and base64. Measured numbers are logarithms of 16 bits (PackNumber);
// a leg's headroom is 0 where it is error / bound.
std::string PackData(const ReportModel& model);

// 0: not measured, 1: zero, 65534: NaN, 65535: infinity; else the logarithm
// from 1e-20 to 1e20 in steps of 0.14 %, of which two digits are shown.
// REQUIRES: value is not negative; such are taken as zero.
uint16_t PackNumber(double value);

// Where a bound comes from without the number that is its own:
// "noise 1.3e-02 x 2 (3 noise legs)" -> "noise {} x 2 (3 noise legs)". The
// script divides the bound by the factor to put it back.
std::string ProvenanceTemplate(std::string_view provenance);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_PACKED_DATA_H_
