// --junit, --sarif, --markdown and --perfetto: a result for other programs, as
// `check` and `diff` write it beside their own and `report` from one that is
// there.

#ifndef TTRACE_SRC_CLI_EXPORT_OPTIONS_H_
#define TTRACE_SRC_CLI_EXPORT_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "src/report/result_file.h"
#include "ttrace/status.h"

namespace ttrace {

struct ExportOptions {
  std::string junit;
  std::string sarif;
  std::string markdown;
  std::string perfetto;
  std::string source_root;

  bool any() const {
    return !(junit.empty() && sarif.empty() && markdown.empty() &&
             perfetto.empty());
  }
};

void AddExportOptions(CLI::App* command, ExportOptions* options);

// Names of the files that are asked for in `folder` itself.
std::vector<std::string> ExportsIn(const ExportOptions& options,
                                   const std::string& folder);

// What would keep files from being written, before a run takes its time: a
// folder that is not there. `output`: one that will be; "": none.
Status CheckExports(const ExportOptions& options, const std::string& output);

// Writes all that is asked for. `trace`: of the candidate, for --perfetto. A
// file of - is the standard output. What is not an error but should be known is
// said on stderr.
Status WriteExports(const ExportOptions& options, const ResultFile& result,
                    const std::string& trace);

// Writes one file; - is the standard output.
Status WriteExport(const std::string& file, const std::string& text);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_EXPORT_OPTIONS_H_
