// A result as the page draws it: tensors in the order of execution, each with
// its severity, its column of the map and its row of the overview.
//
// Thread safety: plain values and pure functions. A model refers to its result.

#ifndef TTRACE_SRC_REPORT_HTML_REPORT_MODEL_H_
#define TTRACE_SRC_REPORT_HTML_REPORT_MODEL_H_

#include <array>
#include <string>
#include <vector>

#include "src/report/html/severity.h"
#include "src/report/result_file.h"

namespace ttrace {

// Columns of the map, left to right as an iteration makes them.
struct MapColumn {
  const char* label;
  const char* group;
};
inline constexpr size_t kMapColumns = 8;
extern const std::array<MapColumn, kMapColumns> kMapColumnWords;

size_t MapColumnOf(const ResultFile::Id& id);

// Whether its name is that of a parameter, not of a module.
bool IsOfParameter(const std::string& role);

// Whether it is of the iteration as a whole: data, loss, gradient norm.
bool IsOfIteration(const std::string& role);

// Row of the overview: the layer, or the module near the top.
std::string OverviewGroup(const ResultFile::Id& id);

struct ReportModel {
  const ResultFile* result = nullptr;
  std::vector<const ResultFile::Tensor*> tensors;  // by iteration, then order
  std::vector<Severity> severity;                  // of each, end to end
  std::vector<Severity> isolated;
  // Of each culprit its tensor's place in `tensors`, or -1.
  std::vector<int64_t> culprit_tensor;
  // Culprits of which there is no tensor: what runs say of their settings.
  std::vector<size_t> stated;
  // The iteration that is shown first: the first culprit's, else the first.
  int64_t iteration = 0;

  const ResultFile::Tensor* TensorOfCulprit(size_t i) const {
    return culprit_tensor[i] < 0
               ? nullptr
               : tensors[static_cast<size_t>(culprit_tensor[i])];
  }
};

ReportModel MakeReportModel(const ResultFile& result);

// OverviewGroups of the model, in the order in which the forward reaches them.
std::vector<std::string> OverviewRows(const ReportModel& model);

// The tensor's fragment (TensorFragment) in the page.
std::string FragmentOf(const ResultFile::Id& id);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_REPORT_MODEL_H_
