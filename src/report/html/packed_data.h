// All tensors for the page's script: about 60 bytes a tensor instead of the
// 1,500 of result.json.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_HTML_PACKED_DATA_H_
#define TTRACE_SRC_REPORT_HTML_PACKED_DATA_H_

#include <string>

#include "src/report/html/report_model.h"

namespace ttrace {

// Where there are more legs, those of clean tensors are left out: a page of
// 10,000 tensors stays below 1 MB.
inline constexpr size_t kMostPackedLegs = 45000;

// JSON that holds no "<", ">" and "&", so that no text can end its element.
//
// Strings stand once in tables, and a tensor is a row of numbers. A column of
// these is "=7" if all are 7, else B, H or I (bytes, 16 or 32 bits, little
// endian) and base64. Measured numbers are logarithms of 16 bits
// (packed_values.h); a leg's headroom is 0 where it is error / bound.
std::string PackData(const ReportModel& model);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_PACKED_DATA_H_
