// The parts of the page that need no script: plain HTML and SVG. Each returns
// "" where there is nothing to show.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_REPORT_HTML_SECTIONS_H_
#define TTRACE_SRC_REPORT_HTML_SECTIONS_H_

#include <string>
#include <string_view>

#include "src/report/html/report_model.h"

namespace ttrace {

// What a verdict is called at the top of a page.
struct Headline {
  const char* sign;
  const char* words;
};
Headline HeadlineOf(const std::string& verdict);

// The first place with its evidence and the next commands, then the others;
// of an inconclusive result first what could not be decided and why.
std::string StoryHtml(const ReportModel& model);

// The legs of one tensor, each with error, bound and noise on one log axis.
std::string EvidenceHtml(const ResultFile::Tensor& tensor);

// Where in the tensor: errors by blocks of rows and columns, and by pieces.
std::string PatternHtml(const ResultFile::Pattern& pattern);

// Command lines with a button that copies each, and advice.
std::string NextStepsHtml(const std::vector<std::string>& steps);

// A command to copy; hidden buttons appear where a script runs.
std::string CommandHtml(std::string_view command);

// What was not decided, by reason, with examples.
std::string UndecidedHtml(const ReportModel& model);

// Worst tensor of each layer and kind in one iteration, as a drawing, and one
// of each other iteration where there are few.
std::string OverviewHtml(const ReportModel& model);

// How many tensors of each kind are in bounds.
std::string CleanBarsHtml(const ResultFile& result);

// What colours mean, and marks where there are such.
struct LegendMarks {
  bool culprits = false;
  bool downstream = false;
};
std::string LegendHtml(const LegendMarks& marks);

// The candidate's ranks by their coordinates: which hold what is out of bounds,
// and which hold other copies.
std::string RanksHtml(const ReportModel& model);

// The rows of the table of tensors before a script fills it: those that matter
// most.
inline constexpr size_t kPlainRows = 25;
std::string TensorRowsHtml(const ReportModel& model);

std::string CoverageHtml(const ReportModel& model);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_HTML_SECTIONS_H_
