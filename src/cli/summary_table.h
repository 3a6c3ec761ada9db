// What the experiments of a run came to, a line each.
//
// Thread safety: pure functions, but for SummaryOf, which reads a file.

#ifndef TTRACE_SRC_CLI_SUMMARY_TABLE_H_
#define TTRACE_SRC_CLI_SUMMARY_TABLE_H_

#include <string>
#include <vector>

namespace ttrace {

struct SummaryRow {
  std::string name;
  std::string verdict;  // "within"; "no result", "not run", "interrupted"
  bool has_result = false;
  std::string first_place;  // of what is wrong; empty: nothing is, or unknown
  std::string bug_class;
  std::string reason;  // why there is no verdict
  double seconds = 0;
  int exit_code = 2;
};

// Of a diff into `folder` that ended so; "": it left nothing there. No result
// is a verdict of its own.
SummaryRow SummaryOf(const std::string& name, const std::string& folder,
                     int exit_code, double seconds);

// At most `width` columns, where names leave that much.
std::string SummaryTable(const std::vector<SummaryRow>& rows, size_t width);

// Of all together: 1 if one diverged, else 2 if one was not decided, else 0.
int WorstExitCode(const std::vector<SummaryRow>& rows);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_SUMMARY_TABLE_H_
